#include "parser/base/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "parser/base/user_settings.h"

namespace ckptfs {
namespace {

std::string Directory() {
  const std::string directory = GetEnvironment("TMPDIR");
  return directory.empty() ? "/var/tmp" : directory;
}

// The error of the last system call.
Error LastError() {
  const int code = errno;
  return {code, ErrnoText(code)};
}

[[noreturn]] void FailToCreate() {
  FailErrno("cannot create a temporary file in $TMPDIR or /var/tmp");
}

}  // namespace

ReadResult ReadFully(int file, uint64_t offset, std::span<std::byte> buffer) {
  ReadResult result;
  while (result.count < buffer.size()) {
    const auto rest = buffer.subspan(result.count);
    const ssize_t n =
        ::pread(file, rest.data(), rest.size(), static_cast<off_t>(offset + result.count));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) result.error = LastError();
    if (n <= 0) break;
    result.count += static_cast<size_t>(n);
  }
  return result;
}

std::optional<Error> WriteFully(int file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return LastError();
    if (n == 0) return Error(EIO, ErrnoText(EIO));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return std::nullopt;
}

Fd MakeTemporaryFile() {
  const std::string directory = Directory();
  Fd unnamed(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (unnamed.number() >= 0) return unnamed;
  // The errors of kernels and file systems without O_TMPFILE.
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) FailToCreate();
  std::string path = directory + "/ckptfs-XXXXXX";
  Fd named(::mkostemp(path.data(), O_CLOEXEC));
  if (named.number() < 0 || ::unlink(path.c_str()) != 0) FailToCreate();
  return named;
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

ScratchFile::~ScratchFile() {
  if (space_ != nullptr) space_->Return(end_);
}

std::optional<uint64_t> ScratchFile::Write(std::span<const std::byte> bytes) {
  const auto offset = Reserve(bytes.size());
  if (!offset || !WriteFully(file_.number(), *offset, bytes)) return offset;
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
  if (file_.number() < 0) {
    try {
      file_ = MakeTemporaryFile();
    } catch (const Error&) {
      space_->Return(size);
      return std::nullopt;
    }
  }
  struct statvfs disk = {};
  const bool is_known = ::fstatvfs(file_.number(), &disk) == 0;
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
  if (error) throw WithContext(fmt::format("cannot read a temporary file at byte {}", end), *error);
  Fail(EIO, "temporary file: unexpected end of file at byte {}", end);
}

}  // namespace ckptfs
