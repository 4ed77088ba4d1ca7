// Local files and directories.
//
// A mount must never mix bytes of two versions of a file. The open descriptor pins device and
// inode. Writes change the size and the times of a file, which every read compares. The
// modification time can be set back, but not the time of the last change of the inode (ctime),
// which chmod, link and rename change, too. Such a change cannot be distinguished from a write
// whose traces it hides, so each makes a file stale. The only exception is a file without a name,
// because it was removed or replaced: it cannot be opened again, and reads of the old version
// continue. A file that is truncated while it is read returns an error: it is never mapped into
// memory, where that would raise SIGBUS.
//
// A process may have a few thousand open files, and a checkpoint may have more: the first files of
// a directory stay open, the others are opened for each read. One of the latter that is replaced by
// a rename counts as changed.

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/io/byte_source.h"
#include "parser/scheme.h"
#include "parser/source/file_path.h"

namespace ckptfs {
namespace {

using Nanoseconds = int64_t;

struct stat StatOf(const Fd& fd) {
  struct stat st = {};
  if (::fstat(fd.number(), &st) < 0) FailErrno("cannot stat");
  return st;
}

Nanoseconds Since1970(const timespec& time) {
  return time.tv_sec * Nanoseconds{1'000'000'000} + time.tv_nsec;
}

// Returns the permissions to read a file or a directory, which readers must also enter, as bits of
// r--r--r--.
mode_t ReadersOf(const struct stat& st) {
  return (S_ISDIR(st.st_mode) ? st.st_mode << 2U : st.st_mode) & 0444U;
}

// The directory of a URI, and the state that all directories below it share.
struct Root {
  Root(Fd directory, const SourceOptions& options)
      : fd(std::make_shared<const Fd>(std::move(directory))),
        links(options.links),
        opened(options.opened) {}

  // Reports the permissions of a file or a directory.
  void Report(const struct stat& st) const {
    if (opened) opened(ReadersOf(st), st.st_gid);
  }

  // Files that stay open.
  static constexpr int kMostOpen = 1000;

  const std::shared_ptr<const Fd> fd;
  const LinkPolicy links;
  const std::function<void(mode_t, gid_t)> opened;
  mutable std::atomic<int> open_files = 0;
};

using RootPtr = std::shared_ptr<const Root>;

// Returns what distinguishes the version of a file that `st` describes from others. A directory
// remains the same when files are added.
std::string VersionOf(const struct stat& st) {
  if (S_ISDIR(st.st_mode)) {
    return fmt::format("{}:{}:{}:{}:{}", st.st_dev, st.st_ino, st.st_mode, st.st_uid, st.st_gid);
  }
  return fmt::format("{}:{}:{}:{}:{}", st.st_dev, st.st_ino, st.st_size, Since1970(st.st_mtim),
                     Since1970(st.st_ctim));
}

// A file that is open for reading.
struct OpenFile {
  explicit OpenFile(Fd file) : fd(std::move(file)), st(StatOf(fd)) {}

  Fd fd;
  struct stat st;
};

class FileSource final : public ByteSource, public PartlyStored {
 public:
  // Keeps `file` open. `name` is for messages. If `counted` is not null, the file is one of its
  // open files.
  FileSource(std::string name, OpenFile file, RootPtr counted = nullptr)
      : name_(std::move(name)),
        fd_(std::move(file.fd)),
        pinned_(file.st),
        counted_(std::move(counted)) {}

  // Opens the file, whose stat is `st`, for each read: `path` in `root`.
  FileSource(std::string name, const struct stat& st, RootPtr root, std::string path)
      : name_(std::move(name)), pinned_(st), root_(std::move(root)), path_(std::move(path)) {}

  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource() override {
    if (counted_ != nullptr) --counted_->open_files;
  }

  std::string name() const override { return name_; }
  uint64_t size() const override { return static_cast<uint64_t>(pinned_.st_size); }
  timespec modified() const override { return pinned_.st_mtim; }
  bool is_immediate() const override { return true; }

  uint64_t stored_size() const override {
    constexpr uint64_t kBlock = 512;  // Bytes, whatever the file system has.
    return std::min(size(), static_cast<uint64_t>(pinned_.st_blocks) * kBlock);
  }

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
    PeriodicCheck steps;
    for (; !buffer.empty(); offset += stride, buffer = buffer.subspan(length)) {
      steps.Next();
      ReadUnchecked(fd, offset, buffer.first(length));
    }
    CheckUnchanged(fd);
  }

 private:
  // Opens the file, unless it stays open. CheckUnchanged checks after the read that it is the same.
  Fd Reopened() const {
    if (root_ == nullptr) return Fd(-1);
    try {
      return file::OpenForReading(file::OpenPath(*root_->fd, path_, root_->links));
    } catch (const Error& e) {
      constexpr int kOther[] = {ENOENT, ENOTDIR, EISDIR, EINVAL};
      if (std::ranges::count(kOther, e.code()) != 0) FailChanged();
      throw;
    }
  }

  // The result is valid only if CheckUnchanged returns after it.
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
        now.st_size != pinned_.st_size || Since1970(now.st_mtim) != Since1970(pinned_.st_mtim)) {
      FailChanged();
    }
    const Nanoseconds changed = Since1970(now.st_ctim);
    if (changed == Since1970(pinned_.st_ctim)) return;
    if (now.st_nlink != 0) FailChanged();
    // The first change is the removal.
    Nanoseconds removed = 0;
    if (!removed_.compare_exchange_strong(removed, changed) && removed != changed) FailChanged();
  }

  [[noreturn]] static void FailChanged() { Fail(ESTALE, "file changed since it was opened"); }

  const std::string name_;
  const Fd fd_{-1};
  const struct stat pinned_;
  const RootPtr counted_;  // May be null.
  const RootPtr root_;     // Null if the file is kept open.
  const std::string path_;
  mutable std::atomic<Nanoseconds> removed_ =
      0;  // The ctime of the file without a name, once known.
};

// The descriptor pins the directory: files are found even if it is moved. Links to files are
// followed as LinkPolicy permits, because the caches of some libraries consist of them.
class LocalFolder final : public Folder {
 public:
  LocalFolder(std::string name, RootPtr root)
      : name_(std::move(name)), root_(std::move(root)), fd_(root_->fd) {}

  // A directory below `root` at `path`, which ends with '/'.
  LocalFolder(std::string name, RootPtr root, std::string path, Fd fd)
      : name_(std::move(name)),
        root_(std::move(root)),
        path_(std::move(path)),
        fd_(std::make_shared<const Fd>(std::move(fd))) {}

  std::string name() const override { return name_; }
  timespec modified() const override { return StatOf(*fd_).st_mtim; }

  std::vector<std::string> List() const override { return ListIf(&LocalFolder::IsFile); }
  std::vector<std::string> ListFolders() const override { return ListIf(&LocalFolder::IsFolder); }

  ByteSourcePtr Open(const std::string& name) const override {
    RequireName(name);
    OpenFile file = OpenForReading(name);
    root_->Report(file.st);
    std::string full_name = (std::filesystem::path(name_) / name).string();
    if (root_->open_files.fetch_add(1) < Root::kMostOpen) {
      return std::make_shared<FileSource>(std::move(full_name), std::move(file), root_);
    }
    --root_->open_files;
    return std::make_shared<FileSource>(std::move(full_name), file.st, root_, path_ + name);
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    RequireName(name);
    Fd fd(::openat(fd_->number(), name.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW));
    if (fd.number() >= 0) {
      if (root_->opened) root_->Report(StatOf(fd));
      return std::make_shared<LocalFolder>((std::filesystem::path(name_) / name).string(), root_,
                                           path_ + name + "/", std::move(fd));
    }
    if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return nullptr;
    FailErrno("cannot open");
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    RequireName(name);
    struct stat st = {};
    if (::fstatat(fd_->number(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) < 0) {
      if (errno == ENOENT || errno == ENAMETOOLONG) return std::nullopt;
      FailErrno("cannot stat");
    }
    if (S_ISLNK(st.st_mode)) {
      try {
        st = StatOf(file::OpenPath(*root_->fd, path_ + name, root_->links));
      } catch (const Error& e) {
        constexpr int kNoFile[] = {EISDIR, ELOOP, ENOENT, ENOTDIR};
        if (std::ranges::count(kNoFile, e.code()) != 0) return std::nullopt;
        throw;
      }
      if (!S_ISREG(st.st_mode)) return std::nullopt;
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return std::nullopt;
    return EntryInfo{.is_folder = S_ISDIR(st.st_mode),
                     .size = S_ISREG(st.st_mode) ? static_cast<uint64_t>(st.st_size) : 0,
                     .modified = st.st_mtim,
                     .version = VersionOf(st),
                     .permissions = ReadersOf(st),
                     .group = st.st_gid};
  }

  std::vector<std::string> ListLinks() const override { return ListIf(&LocalFolder::IsLink); }

  std::optional<std::string> FindLink(const std::string& name) const override {
    RequireName(name);
    struct stat st = {};
    if (::fstatat(fd_->number(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISLNK(st.st_mode)) {
      return std::nullopt;
    }
    const Fd fd(::openat(fd_->number(), name.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY));
    if (fd.number() < 0) return std::nullopt;
    // Its own text may be absolute, or lead through other links.
    const std::string target = PathOf(fd);
    const std::string root = PathOf(*root_->fd);
    const std::string here = PathOf(*fd_);
    if (root.empty() || here.empty() || (target != root && !target.starts_with(root + "/"))) {
      return std::nullopt;
    }
    return std::filesystem::path(target).lexically_relative(here).string();
  }

 private:
  static void RequireName(const std::string& name) {
    if (!IsLocalName(name)) Fail(EBADMSG, "invalid file name");
  }

  // Opens the file `name`. Regular files, as most are, cost an open and two stats. Anything else is
  // opened with O_PATH first: opening a device may have effects.
  OpenFile OpenForReading(const std::string& name) const {
    struct stat st = {};
    if (::fstatat(fd_->number(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode)) {
      Fd fd(::openat(fd_->number(), name.c_str(),
                     O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
      if (fd.number() >= 0) {
        OpenFile file(std::move(fd));
        if (S_ISREG(file.st.st_mode)) return file;
      }
    }
    Fd path(::openat(fd_->number(), name.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
    if (path.number() < 0) FailErrno("cannot open");
    if (!S_ISLNK(StatOf(path).st_mode)) return OpenFile(file::OpenForReading(path));
    return OpenFile(file::OpenForReading(file::OpenPath(*root_->fd, path_ + name, root_->links)));
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

  bool IsLink(const dirent& entry) const {
    if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return false;
    return FindLink(entry.d_name).has_value();
  }

  // Where the directory of a descriptor is now; empty if that is not known.
  static std::string PathOf(const Fd& fd) {
    std::error_code error;
    return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd.number()), error);
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
  const RootPtr root_;
  const std::string path_;  // From the root; ends with '/' if it is not empty.
  const std::shared_ptr<const Fd> fd_;
};

// Follows links, because the user has named the file.
SchemeSource OpenLocal(const Location& location, const SourceOptions& options) {
  const std::string path = file::PathOf(location);
  if (path.empty()) Fail(ENOENT, "the path is empty");
  const std::filesystem::path parts(path);
  const std::string parent = parts.has_parent_path() ? parts.parent_path().string() : ".";
  const std::string name = parts.filename().string();
  // The file is opened in the directory of its siblings, or that could be another one by then.
  Fd directory(::open(parent.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY));
  if (directory.number() < 0) FailErrno("cannot open");
  Fd fd(
      ::openat(directory.number(), parts.has_filename() ? name.c_str() : ".", O_PATH | O_CLOEXEC));
  if (fd.number() < 0) FailErrno("cannot open");
  if (S_ISDIR(StatOf(fd).st_mode)) {
    const auto root = std::make_shared<const Root>(std::move(fd), options);
    root->Report(StatOf(*root->fd));
    return Source{
        .file = nullptr, .folder = std::make_shared<LocalFolder>(path, root), .file_name = ""};
  }
  OpenFile opened(file::OpenForReading(fd));
  const auto root = std::make_shared<const Root>(std::move(directory), options);
  root->Report(opened.st);
  return Source{.file = std::make_shared<FileSource>(path, std::move(opened)),
                .folder = std::make_shared<LocalFolder>(parent, root),
                .file_name = name};
}

constexpr std::string_view kFileNames[] = {"file"};

}  // namespace

extern const Scheme file_scheme{.names = kFileNames, .open = OpenLocal};

}  // namespace ckptfs
