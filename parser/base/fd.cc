#include "parser/base/fd.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "parser/base/user_settings.h"

namespace ckptfs {
namespace {

std::string Directory() {
  const std::string directory = GetEnvironment("TMPDIR");
  return directory.empty() ? "/var/tmp" : directory;
}

}  // namespace

ReadResult ReadFully(int file, uint64_t offset, std::span<std::byte> buffer) {
  ReadResult result;
  while (result.count < buffer.size()) {
    const auto rest = buffer.subspan(result.count);
    const ssize_t n =
        ::pread(file, rest.data(), rest.size(), static_cast<off_t>(offset + result.count));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) result.error = errno;
    if (n <= 0) break;
    result.count += static_cast<size_t>(n);
  }
  return result;
}

int WriteFully(int file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return 0;
}

Fd MakeTemporaryFile() {
  const std::string directory = Directory();
  Fd unnamed(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (unnamed.number() >= 0) return unnamed;
  // The errors of kernels and file systems without O_TMPFILE.
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
    std::string path = directory + "/ckptfs-XXXXXX";
    Fd named(::mkostemp(path.data(), O_CLOEXEC));
    if (named.number() >= 0 && ::unlink(path.c_str()) == 0) return named;
  }
  return Fd();
}

uint64_t FreeForTemporaryFiles() {
  struct statvfs disk = {};
  if (::statvfs(Directory().c_str(), &disk) != 0) return 0;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

uint64_t DefaultScratch() {
  constexpr uint64_t kMost = uint64_t{4} << 30U;
  constexpr uint64_t kShare = 4;
  return std::min(kMost, FreeForTemporaryFiles() / kShare);
}

}  // namespace ckptfs
