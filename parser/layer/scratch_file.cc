#include "parser/layer/scratch_file.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/temporary_file.h"

namespace ckptfs {
namespace {

bool Write(int file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

ScratchFile::~ScratchFile() {
  if (space_ != nullptr) space_->Return(end_);
}

std::optional<uint64_t> ScratchFile::Keep(std::span<const std::byte> bytes) {
  const auto offset = Reserve(bytes.size());
  if (!offset || Write(file_.number(), *offset, bytes)) return offset;
  const std::scoped_lock lock(mutex_);
  if (end_ == *offset + bytes.size()) {
    end_ = *offset;
    space_->Return(bytes.size());
  }
  return std::nullopt;
}

std::optional<uint64_t> ScratchFile::Reserve(size_t size) {
  const std::scoped_lock lock(mutex_);
  if (space_ == nullptr || !space_->Take(size)) return std::nullopt;
  if (file_.number() < 0) file_ = MakeTemporaryFile();
  struct statvfs disk = {};
  const bool is_known = file_.number() >= 0 && ::fstatvfs(file_.number(), &disk) == 0;
  const uint64_t free = is_known ? uint64_t{disk.f_bavail} * disk.f_frsize : 0;
  if (size > free || end_ + size > free - size) {
    space_->Return(size);
    return std::nullopt;
  }
  return std::exchange(end_, end_ + size);
}

void ScratchFile::Read(uint64_t offset, std::span<std::byte> buffer) const {
  while (!buffer.empty()) {
    const ssize_t n =
        ::pread(file_.number(), buffer.data(), buffer.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot read a temporary file at byte {}", offset);
    if (n == 0) Fail(EIO, "a temporary file ends at byte {}", offset);
    buffer = buffer.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

}  // namespace ckptfs
