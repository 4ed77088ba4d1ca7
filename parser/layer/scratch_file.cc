#include "parser/layer/scratch_file.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs {

ScratchFile::~ScratchFile() {
  if (space_ != nullptr) space_->Return(end_);
}

std::optional<uint64_t> ScratchFile::Keep(std::span<const std::byte> bytes) {
  const auto offset = Reserve(bytes.size());
  if (!offset || WriteFully(file_.number(), *offset, bytes) == 0) return offset;
  const MutexLock lock(mutex_);
  if (end_ == *offset + bytes.size()) {
    end_ = *offset;
    space_->Return(bytes.size());
  }
  return std::nullopt;
}

std::optional<uint64_t> ScratchFile::Reserve(size_t size) {
  const MutexLock lock(mutex_);
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
  const auto [count, error] = ReadFully(file_.number(), offset, buffer);
  if (count == buffer.size()) return;
  const uint64_t end = offset + count;
  if (error != 0) Fail(error, "cannot read a temporary file at byte {}: {}", end, ErrnoText(error));
  Fail(EIO, "temporary file: unexpected end of file at byte {}", end);
}

}  // namespace ckptfs
