// Local files and directories.
//
// A mount must never mix bytes of two versions of a file. The open descriptor pins device and
// inode: a file that is replaced by a rename goes on being served as it was. A file that is written
// in place shows in its size or time of modification, which every read compares. A file that is cut
// while it is read gives an error: it is never mapped into memory, where that would be a SIGBUS.
//
// A process may have a few thousand files open, and a checkpoint may have more: of those of a
// directory the first ones stay open, the others are opened for each read. One of these that is
// replaced by a rename has changed.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/error.h"
#include "parser/fd.h"
#include "parser/immediate.h"
#include "parser/interruption.h"
#include "parser/scheme.h"
#include "parser/source/file/uri.h"

namespace ckptfs {
namespace {

struct stat StatOf(const Fd& fd) {
  struct stat st = {};
  if (::fstat(fd.number(), &st) < 0) FailErrno("cannot stat");
  return st;
}

// Opens `path`, which is relative to `directory`. Does not wait for a writer if it is a pipe; for
// files O_NONBLOCK means nothing.
Fd OpenForReading(int directory, const std::string& path) {
  Fd fd(::openat(directory, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.number() >= 0) return fd;
  if (errno == ENXIO) Fail(EINVAL, "not a regular file");  // A socket.
  FailErrno("cannot open");
}

class FileSource final : public ByteSource, public Immediate {
 public:
  // Keeps `fd` open. `name` is what messages call the file.
  FileSource(std::string name, Fd fd)
      : name_(std::move(name)), fd_(std::move(fd)), pinned_(PinnedStatOf(fd_)) {}

  // Opens the file, which `fd` is, for each read: `path` in `root`.
  FileSource(std::string name, const Fd& fd, std::shared_ptr<const Fd> root, std::string path)
      : name_(std::move(name)),
        pinned_(PinnedStatOf(fd)),
        root_(std::move(root)),
        path_(std::move(path)) {}

  std::string name() const override { return name_; }
  uint64_t size() const override { return static_cast<uint64_t>(pinned_.st_size); }
  timespec modified() const override { return pinned_.st_mtim; }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    const Fd opened = Reopened();
    const Fd& fd = root_ == nullptr ? fd_ : opened;
    ReadUnchecked(fd, offset, buffer);
    CheckUnchanged(fd);
  }

  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    const Fd opened = Reopened();
    const Fd& fd = root_ == nullptr ? fd_ : opened;
    ManySteps steps;
    for (; !buffer.empty(); offset += stride, buffer = buffer.subspan(length)) {
      steps.Next();
      ReadUnchecked(fd, offset, buffer.first(length));
    }
    CheckUnchanged(fd);
  }

 private:
  static struct stat PinnedStatOf(const Fd& fd) {
    const struct stat st = StatOf(fd);
    if (S_ISDIR(st.st_mode)) Fail(EISDIR, "is a directory");
    if (!S_ISREG(st.st_mode)) Fail(EINVAL, "not a regular file");
    return st;
  }

  // The file, if it is not kept open; whether it is the same shows after the read.
  Fd Reopened() const {
    if (root_ == nullptr) return Fd(-1);
    try {
      return OpenForReading(root_->number(), path_);
    } catch (const Error& e) {
      if (e.code() == ENOENT || e.code() == ENOTDIR || e.code() == EINVAL) FailChanged();
      throw;
    }
  }

  // What it reads counts only if CheckUnchanged comes after it.
  static void ReadUnchecked(const Fd& fd, uint64_t offset, std::span<std::byte> buffer) {
    while (!buffer.empty()) {
      const ssize_t n =
          ::pread(fd.number(), buffer.data(), buffer.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) FailErrno("cannot read {} bytes at byte {}", buffer.size(), offset);
      if (n == 0) FailChanged();
      buffer = buffer.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }

  // After the read, so that a write before or during it is noticed.
  void CheckUnchanged(const Fd& fd) const {
    const struct stat now = StatOf(fd);
    if (now.st_dev != pinned_.st_dev || now.st_ino != pinned_.st_ino ||
        now.st_size != pinned_.st_size || now.st_mtim.tv_sec != pinned_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != pinned_.st_mtim.tv_nsec) {
      FailChanged();
    }
  }

  [[noreturn]] static void FailChanged() {
    Fail(ESTALE, "the file has changed since it was opened");
  }

  const std::string name_;
  const Fd fd_{-1};
  const struct stat pinned_;
  const std::shared_ptr<const Fd> root_;  // Null if the file is kept open.
  const std::string path_;
};

// The directory that a URI names, and what all directories below it share.
struct Root {
  explicit Root(Fd directory) : fd(std::make_shared<const Fd>(std::move(directory))) {}

  // Files that are kept open, all others of the process left aside.
  static constexpr int kMostOpen = 1000;

  const std::shared_ptr<const Fd> fd;
  mutable std::atomic<int> open_files = 0;
};

// The descriptor pins the directory: its files are found there even if it is moved. Links to files
// are followed, because the caches of some libraries consist of them.
class LocalFolder final : public Folder {
 public:
  LocalFolder(std::string name, std::shared_ptr<const Root> root)
      : name_(std::move(name)), root_(std::move(root)), fd_(root_->fd) {}

  // A directory below `root`; `path` leads there and ends with '/'.
  LocalFolder(std::string name, std::shared_ptr<const Root> root, std::string path, Fd fd)
      : name_(std::move(name)),
        root_(std::move(root)),
        path_(std::move(path)),
        fd_(std::make_shared<const Fd>(std::move(fd))) {}

  std::string name() const override { return name_; }
  timespec modified() const override { return StatOf(*fd_).st_mtim; }

  std::vector<std::string> List() const override { return ListIf(&LocalFolder::IsFile); }
  std::vector<std::string> ListFolders() const override { return ListIf(&LocalFolder::IsFolder); }

  ByteSourcePtr Open(const std::string& name) const override {
    RequirePlain(name);
    Fd fd = OpenForReading(fd_->number(), name);
    std::string called = (std::filesystem::path(name_) / name).string();
    if (root_->open_files.fetch_add(1) < Root::kMostOpen) {
      return std::make_shared<FileSource>(std::move(called), std::move(fd));
    }
    return std::make_shared<FileSource>(std::move(called), fd, root_->fd, path_ + name);
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    RequirePlain(name);
    Fd fd(::openat(fd_->number(), name.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW));
    if (fd.number() >= 0) {
      return std::make_shared<LocalFolder>((std::filesystem::path(name_) / name).string(), root_,
                                           path_ + name + "/", std::move(fd));
    }
    if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return nullptr;
    FailErrno("cannot open");
  }

 private:
  static void RequirePlain(const std::string& name) {
    if (!IsPlainName(name)) Fail(EBADMSG, "is not the name of a file in the directory");
  }

  std::vector<std::string> ListIf(bool (LocalFolder::*is_wanted)(const dirent&) const) const {
    const int again = ::openat(fd_->number(), ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(again < 0 ? nullptr : ::fdopendir(again),
                                                        ::closedir);
    if (!directory) FailErrno("cannot list the directory");
    std::vector<std::string> files;
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(directory.get());
      if (entry == nullptr) break;
      if (!(this->*is_wanted)(*entry)) continue;
      if (files.size() == kMostFiles) Fail(EFBIG, "has more than {} files", kMostFiles);
      files.emplace_back(entry->d_name);
    }
    if (errno != 0) FailErrno("cannot list the directory");
    std::ranges::sort(files);
    return files;
  }

  bool IsFile(const dirent& entry) const {
    if (entry.d_type == DT_REG) return true;
    if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return false;
    struct stat st = {};
    return ::fstatat(fd_->number(), entry.d_name, &st, 0) == 0 && S_ISREG(st.st_mode);
  }

  bool IsFolder(const dirent& entry) const {
    const std::string_view name = entry.d_name;
    if (name == "." || name == "..") return false;
    if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
    struct stat st = {};
    return ::fstatat(fd_->number(), entry.d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
  }

  const std::string name_;
  const std::shared_ptr<const Root> root_;
  const std::string path_;  // From the root; ends with '/' if it is not empty.
  const std::shared_ptr<const Fd> fd_;
};

// Returns null if the directory cannot be opened.
FolderPtr FolderAt(const std::string& path) {
  Fd fd(::open(path.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY));
  if (fd.number() < 0) return nullptr;
  return std::make_shared<LocalFolder>(path, std::make_shared<const Root>(std::move(fd)));
}

Source Open(const std::string& uri, const SourceOptions& /*options*/) {
  const std::string path = file::PathOf(uri);
  Fd fd = OpenForReading(AT_FDCWD, path);
  if (S_ISDIR(StatOf(fd).st_mode)) {
    return {.file = nullptr, .folder = FolderAt(path), .file_name = ""};
  }
  const std::filesystem::path parts(path);
  const std::string parent = parts.parent_path().string();
  return {.file = std::make_shared<FileSource>(path, std::move(fd)),
          .folder = FolderAt(parent.empty() ? "." : parent),
          .file_name = parts.filename().string()};
}

constexpr std::string_view kNames[] = {"file"};

}  // namespace

extern const Scheme file_scheme{.names = kNames, .open = Open};

}  // namespace ckptfs
