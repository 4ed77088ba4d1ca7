// Local files and directories.
//
// A mount must never mix bytes of two versions of a file. The open descriptor pins device and
// inode: a file that is replaced by a rename goes on being served as it was. A file that is written
// in place shows in its size or time of modification, which every read compares. A file that is cut
// while it is read gives an error: it is never mapped into memory, where that would be a SIGBUS.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

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

// Opens `path`, which is relative to `directory`. Does not wait for a writer if it is a pipe; for
// files O_NONBLOCK means nothing.
Fd OpenForReading(int directory, const std::string& path) {
  Fd fd(::openat(directory, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.number() >= 0) return fd;
  if (errno == ENXIO) Fail(EINVAL, "not a regular file");  // A socket.
  FailErrno("cannot open");
}

class FileSource final : public ByteSource {
 public:
  // `path` is what messages call it.
  FileSource(std::string path, Fd fd)
      : path_(std::move(path)), fd_(std::move(fd)), pinned_(StatOf(fd_)) {
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

// The descriptor pins the directory: its files are found there even if it is moved. Links are
// followed, because the caches of some libraries consist of them.
class LocalFolder final : public Folder {
 public:
  LocalFolder(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string name() const override { return path_; }
  timespec modified() const override { return StatOf(fd_).st_mtim; }

  std::vector<std::string> List() const override { return ListIf(&LocalFolder::IsFile); }
  std::vector<std::string> ListFolders() const override { return ListIf(&LocalFolder::IsFolder); }

  ByteSourcePtr Open(const std::string& name) const override {
    RequirePlain(name);
    return std::make_shared<FileSource>((std::filesystem::path(path_) / name).string(),
                                        OpenForReading(fd_.number(), name));
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    RequirePlain(name);
    Fd fd(::openat(fd_.number(), name.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW));
    if (fd.number() >= 0) {
      return std::make_shared<LocalFolder>((std::filesystem::path(path_) / name).string(),
                                           std::move(fd));
    }
    // O_PATH opens links, too, but these are no directories.
    if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return nullptr;
    FailErrno("cannot open");
  }

 private:
  static void RequirePlain(const std::string& name) {
    if (!IsPlainName(name)) Fail(EBADMSG, "is not the name of a file in the directory");
  }

  std::vector<std::string> ListIf(bool (LocalFolder::*is_wanted)(const dirent&) const) const {
    const int again = ::openat(fd_.number(), ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
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
    return ::fstatat(fd_.number(), entry.d_name, &st, 0) == 0 && S_ISREG(st.st_mode);
  }

  bool IsFolder(const dirent& entry) const {
    const std::string_view name = entry.d_name;
    if (name == "." || name == "..") return false;
    if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
    struct stat st = {};
    return ::fstatat(fd_.number(), entry.d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
  }

  const std::string path_;
  const Fd fd_;
};

// Returns null if the directory cannot be opened.
FolderPtr FolderAt(const std::string& path) {
  Fd fd(::open(path.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY));
  return fd.number() < 0 ? nullptr : std::make_shared<LocalFolder>(path, std::move(fd));
}

Source Open(const std::string& uri) {
  constexpr std::string_view kPrefix = "file://";
  const std::string path = uri.starts_with(kPrefix) ? uri.substr(kPrefix.size()) : uri;
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

}  // namespace

extern const Scheme file_scheme{.name = "file", .open = Open};

}  // namespace ckptfs
