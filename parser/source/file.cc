// Local files.
//
// A mount must never mix bytes of two versions of a file. The open descriptor pins device and
// inode: a file that is replaced by a rename goes on being served as it was. A file that is written
// in place shows in its size or time of modification, which every read compares. A file that is cut
// while it is read gives an error: it is never mapped into memory, where that would be a SIGBUS.

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "parser/error.h"
#include "parser/fd.h"
#include "parser/scheme.h"

namespace ckptfs {
namespace {

struct stat StatOf(const Fd& fd) {
  struct stat st = {};
  if (::fstat(fd.number(), &st) < 0) FailErrno("cannot stat");
  return st;
}

// Does not wait for a writer if `path` is a pipe; for files O_NONBLOCK means nothing.
Fd OpenForReading(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.number() >= 0) return fd;
  if (errno == ENXIO) Fail(EINVAL, "not a regular file");  // A socket.
  FailErrno("cannot open");
}

class FileSource final : public ByteSource {
 public:
  explicit FileSource(std::string path)
      : path_(std::move(path)), fd_(OpenForReading(path_)), pinned_(StatOf(fd_)) {
    if (S_ISDIR(pinned_.st_mode)) Fail(EISDIR, "is a directory");
    if (!S_ISREG(pinned_.st_mode)) Fail(EINVAL, "not a regular file");
  }

  std::string name() const override { return path_; }
  uint64_t size() const override { return static_cast<uint64_t>(pinned_.st_size); }
  timespec modified() const override { return pinned_.st_mtim; }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    ReadUnchecked(offset, buffer);
    CheckUnchanged();
  }

  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    for (; !buffer.empty(); offset += stride, buffer = buffer.subspan(length)) {
      ReadUnchecked(offset, buffer.first(length));
    }
    CheckUnchanged();
  }

 private:
  // What it reads counts only if CheckUnchanged comes after it.
  void ReadUnchecked(uint64_t offset, std::span<std::byte> buffer) const {
    while (!buffer.empty()) {
      const ssize_t n =
          ::pread(fd_.number(), buffer.data(), buffer.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) FailErrno("cannot read {} bytes at byte {}", buffer.size(), offset);
      if (n == 0) FailChanged();
      buffer = buffer.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }

  // After the read, so that a write before or during it is noticed.
  void CheckUnchanged() const {
    const struct stat now = StatOf(fd_);
    if (now.st_size != pinned_.st_size || now.st_mtim.tv_sec != pinned_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != pinned_.st_mtim.tv_nsec) {
      FailChanged();
    }
  }

  [[noreturn]] static void FailChanged() {
    Fail(ESTALE, "the file has changed since it was opened");
  }

  const std::string path_;
  const Fd fd_;
  const struct stat pinned_;
};

ByteSourcePtr OpenFile(const std::string& uri) {
  constexpr std::string_view kPrefix = "file://";
  return std::make_shared<FileSource>(uri.starts_with(kPrefix) ? uri.substr(kPrefix.size()) : uri);
}

}  // namespace

extern const Scheme file_scheme{.name = "file", .open = OpenFile};

}  // namespace ckptfs
