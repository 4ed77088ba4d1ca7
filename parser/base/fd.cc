#include "parser/base/fd.h"

#include <cerrno>

namespace ckptfs {

size_t ReadFully(int file, uint64_t offset, std::span<std::byte> buffer) {
  size_t done = 0;
  errno = 0;
  while (done < buffer.size()) {
    const auto rest = buffer.subspan(done);
    const ssize_t n = ::pread(file, rest.data(), rest.size(), static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = 0;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
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

}  // namespace ckptfs
