#include "parser/base/user_settings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/base/text.h"

namespace ckptfs {
namespace {

Fd Open(const std::string& path, int flags = 0) {
  return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | flags));
}

std::string ReadAll(const Fd& file, const std::string& path, std::string_view kind) {
  constexpr size_t kLargest = 1 << 20;  // Bytes.
  std::string text;
  std::array<char, 4096> piece = {};
  while (true) {
    const ssize_t n = ::read(file.number(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot read the {} {}", kind, Quoted(path));
    if (n == 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
    if (text.size() > kLargest) {
      Fail(EFBIG, "{} {}: file too large: more than {} bytes", kind, Quoted(path), kLargest);
    }
  }
}

}  // namespace

std::string GetEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string ReadSmallFile(const std::string& path, std::string_view kind) {
  const Fd file = Open(path);
  if (file.number() < 0) FailErrno("cannot open the {} {}", kind, Quoted(path));
  return ReadAll(file, path, kind);
}

std::optional<std::string> ReadOptionalFile(const std::string& path, std::string_view kind) {
  // A pipe of this name may have no writer.
  const Fd file = Open(path, O_NONBLOCK);
  if (file.number() >= 0) return ReadAll(file, path, kind);
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  FailErrno("cannot open the {} {}", kind, Quoted(path));
}

std::string ParseToken(std::string_view text, std::string_view name) {
  const std::string_view token = Trim(text);
  if (token.empty()) Fail(EINVAL, "{} is empty", name);
  if (!std::ranges::all_of(token, [](char c) { return c > ' ' && c < 0x7f; })) {
    Fail(EINVAL, "{} is not one word of printable ASCII characters", name);
  }
  return std::string(token);
}

std::string ReadToken(const std::string& path) {
  return ParseToken(ReadSmallFile(path, "token file"),
                    fmt::format("the token in {}", Quoted(path)));
}

}  // namespace ckptfs
