#include "parser/source/s3/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs::s3 {

std::optional<std::string> ReadSmallFile(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 20U;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.number() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    FailErrno("cannot open {}", path);
  }
  std::string text;
  while (text.size() <= kMost) {
    constexpr size_t kStep = 4096;
    const size_t size = text.size();
    text.resize(size + kStep);
    const ssize_t n = ::read(fd.number(), text.data() + size, kStep);
    if (n < 0 && errno != EINTR) FailErrno("cannot read {}", path);
    text.resize(size + static_cast<size_t>(n < 0 ? 0 : n));
    if (n == 0) return text;
  }
  Fail(EFBIG, "{} has more than {} bytes", path, kMost);
}

std::string ReadToken(const std::string& path) {
  const std::optional<std::string> text = ReadSmallFile(path);
  if (!text) Fail(ENOENT, "there is no {}", path);
  const size_t begin = text->find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) Fail(EINVAL, "{} is empty", path);
  return text->substr(begin, text->find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace ckptfs::s3
