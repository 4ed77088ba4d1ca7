#include "parser/source/http/download.h"

#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs::http {

Download::Download(std::optional<uint64_t> expected)
    : file_(MakeTemporaryFile()), is_length_known_(expected.has_value()) {
  const uint64_t free = FreeSpace();
  if (expected && *expected > free) {
    Fail(ENOSPC,
         "not enough space for the download in $TMPDIR or /var/tmp (found {} bytes, expected {})",
         free, *expected);
  }
}

uint64_t Download::FreeSpace() const {
  struct statvfs disk = {};
  if (::fstatvfs(file_.number(), &disk) != 0) return UINT64_MAX;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

void Download::Append(std::span<const std::byte> bytes) {
  if (!is_length_known_) {
    const uint64_t free = FreeSpace();
    if (free < bytes.size() || size_ + bytes.size() > free - bytes.size()) {
      Fail(ENOSPC,
           "download of unknown length takes more than half of the space in $TMPDIR or /var/tmp: "
           "{} bytes so far",
           size_);
    }
  }
  while (!bytes.empty()) {
    const ssize_t n =
        ::pwrite(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot write byte {} of the download in $TMPDIR or /var/tmp", size_);
    bytes = bytes.subspan(static_cast<size_t>(n));
    size_ += static_cast<uint64_t>(n);
  }
}

void Download::Deliver(uint64_t offset, uint64_t length, Delivery& delivery) const {
  while (length > 0) {
    const std::span<std::byte> all = delivery.room();
    const std::span<std::byte> room = all.first(std::min<uint64_t>(all.size(), length));
    const ssize_t n = ::pread(file_.number(), room.data(), room.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot read byte {} of the download", offset);
    if (n == 0) Fail(EIO, "unexpected end of the download at byte {}", offset);
    delivery.Arrived(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
    length -= static_cast<uint64_t>(n);
  }
}

}  // namespace ckptfs::http
