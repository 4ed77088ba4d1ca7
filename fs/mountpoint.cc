// The errno of a refused mount has five meanings, and the kernel allows a mount to hide files or
// another mount. So the mount point is checked first.
//
// A mount whose daemon was killed remains, and all requests fail with ENOTCONN: for `ls` and
// `mkdir` it is neither a directory nor missing. It must be unmounted by hand.

#include "fs/mountpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs {
namespace {

namespace fs = std::filesystem;

bool IsRoot() { return ::geteuid() == 0; }

// Returns an errno. Forces a request to the daemon if `file` is on a mount: the kernel caches
// attributes, and would return them after the daemon has ended.
int Stat(const Fd& file, struct statx& st) {
  constexpr unsigned kWanted = STATX_TYPE | STATX_INO;
  constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_FORCE_SYNC;
  return ::statx(file.number(), "", kFlags, kWanted, &st) < 0 ? errno : 0;
}

// Returns an errno.
int Stat(const fs::path& path, struct statx& st) {
  const Fd file(::open(path.c_str(), O_PATH | O_CLOEXEC));
  return file.number() < 0 ? errno : Stat(file, st);
}

Fd OpenPath(const fs::path& path, int flags = 0) {
  return Fd(::open(path.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY | flags));
}

// Whether both are open and refer to the same file.
bool IsSame(const Fd& a, const Fd& b) {
  struct stat first = {};
  struct stat second = {};
  return ::fstat(a.number(), &first) == 0 && ::fstat(b.number(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Returns the mount point of the dead mount that `path` is on.
std::string DeadMountOf(const std::string& path) {
  fs::path mount = fs::absolute(path).lexically_normal();
  if (!mount.has_filename()) mount = mount.parent_path();  // Of "/mnt/".
  struct statx st = {};
  while (mount.has_relative_path() && Stat(mount.parent_path(), st) == ENOTCONN) {
    mount = mount.parent_path();
  }
  return mount;
}

// Whether a file system is mounted on `directory`. The kernel reports it since Linux 5.8; before,
// the device differs from that of the parent directory.
bool IsMounted(const Fd& directory, const struct statx& st) {
  if ((st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
    return (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  }
  const Fd parent(::openat(directory.number(), "..", O_PATH | O_CLOEXEC | O_DIRECTORY));
  struct statx above = {};
  if (parent.number() < 0 || Stat(parent, above) != 0) return false;
  const bool is_root = above.stx_ino == st.stx_ino;
  return is_root || above.stx_dev_major != st.stx_dev_major ||
         above.stx_dev_minor != st.stx_dev_minor;
}

bool IsEmpty(const Fd& directory, const std::string& path) {
  const int listed = ::openat(directory.number(), ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(listed < 0 ? nullptr : ::fdopendir(listed),
                                                    ::closedir);
  if (entries == nullptr) FailErrno("{}: cannot list it", path);
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return false;
  }
  return true;
}

// Returns the path of an existing file. `shown` is its name for messages.
std::string CanonicalPath(const fs::path& path, const std::string& shown) {
  std::error_code error;
  fs::path canonical = fs::canonical(path, error);
  if (error) Fail(error.value(), "{}: {}", shown, ErrnoText(error.value()));
  return canonical;
}

bool IsInPath(const char* program) {
  const char* const variable = std::getenv("PATH");
  // libfuse tries the path it was built with first, which is one of those that are added.
  const std::string path = std::string(variable == nullptr ? "" : variable) + ":/bin:/usr/bin";
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path file = fs::path(path.substr(begin, end - begin)) / program;
    if (::access(file.c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

Mountpoint::Mountpoint(const std::string& path, bool may_cover)
    : directory_(::open(path.c_str(), O_PATH | O_CLOEXEC)) {
  struct statx st = {};
  switch (const int error = directory_.number() < 0 ? errno : Stat(directory_, st)) {
    case 0:
      break;
    case ENOENT:
      CheckParent(path);
      return;
    case ENOTCONN:
      Fail(ENOTCONN, "{}: a dead mount is still there: its daemon is gone; undo it with: {} {}",
           path, IsRoot() ? "umount" : "fusermount3 -u", DeadMountOf(path));
    default:
      Fail(error, "{}: cannot use the mount point: {}", path, ErrnoText(error));
  }
  if (!S_ISDIR(st.stx_mode)) Fail(ENOTDIR, "{}: the mount point is not a directory", path);
  if (!may_cover) {
    if (IsMounted(directory_, st)) {
      Fail(EBUSY, "{}: something is mounted there already; to cover it, use -o nonempty", path);
    }
    if (!IsEmpty(directory_, path)) {
      Fail(ENOTEMPTY, "{}: the mount point is not empty; to cover its files, use -o nonempty",
           path);
    }
  }
  // fusermount3, which mounts for other users, requires it.
  if (!IsRoot() && ::faccessat(directory_.number(), ".", W_OK, AT_EACCESS) != 0) {
    Fail(EACCES, "{}: permission denied: the mount point is not writable", path);
  }
  path_ = CanonicalPath(path, path);
  parent_ = OpenPath(fs::path(path_).parent_path());
}

Mountpoint::Mountpoint(Mountpoint&& other) noexcept
    : path_(std::move(other.path_)),
      parent_(std::move(other.parent_)),
      directory_(std::move(other.directory_)),
      is_made_(std::exchange(other.is_made_, false)) {}

Mountpoint::~Mountpoint() { Remove(); }

void Mountpoint::CheckParent(const std::string& path) {
  fs::path missing(path);
  if (!missing.has_filename()) missing = missing.parent_path();  // Of "mnt/".
  struct stat link = {};
  const std::string name = missing.filename();
  if (::lstat(missing.c_str(), &link) == 0 || name == "." || name == "..") {
    Fail(ENOENT, "{}: the mount point does not exist", path);
  }
  const fs::path parent = missing.has_parent_path() ? missing.parent_path() : fs::path(".");
  parent_ = OpenPath(parent);
  if (parent_.number() < 0) {
    Fail(ENOENT, "{}: the mount point and its parent directory do not exist", path);
  }
  if (::faccessat(parent_.number(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    Fail(EACCES, "{}: the mount point does not exist and cannot be created: {}", path,
         ErrnoText(errno));
  }
  path_ = fs::path(CanonicalPath(parent, path)) / name;
}

void Mountpoint::Make() {
  const std::string name = fs::path(path_).filename();
  if (::mkdirat(parent_.number(), name.c_str(), 0777) < 0) {
    FailErrno("{}: cannot create the mount point", path_);
  }
  is_made_ = true;
  directory_ =
      Fd(::openat(parent_.number(), name.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW));
}

void Mountpoint::Prepare() {
  Fd now = OpenPath(path_, O_NOFOLLOW);
  // It may also have been removed meanwhile, at the end of another mount that had created it.
  if (now.number() < 0 && errno == ENOENT) {
    Make();
    now = OpenPath(path_, O_NOFOLLOW);
  }
  if (!IsSame(now, directory_)) {
    Fail(ESTALE, "{}: the mount point was replaced", path_);
  }
}

Fd Mountpoint::Top() const {
  const std::string name = fs::path(path_).filename();
  return Fd(::openat(parent_.number(), name.empty() ? "." : name.c_str(),
                     O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW));
}

std::string Mountpoint::CurrentPath() const {
  std::error_code error;
  const fs::path path =
      fs::read_symlink(fmt::format("/proc/self/fd/{}", directory_.number()), error);
  return error ? path_ : path.string();
}

void Mountpoint::Remove() const noexcept try {
  if (!is_made_ || !IsSame(Top(), directory_)) return;
  const std::string name = fs::path(path_).filename();
  ::unlinkat(parent_.number(), name.c_str(), AT_REMOVEDIR);
} catch (const std::exception&) {
  // Out of memory for the name: the directory stays.
}

void CheckFuse() {
  constexpr const char* kDevice = "/dev/fuse";
  const Fd device(::open(kDevice, O_RDWR | O_CLOEXEC));
  if (device.number() < 0) {
    const int error = errno;
    const bool is_refused = error == EACCES || error == EPERM;
    Fail(error, "{}: {}: {}", kDevice, ErrnoText(error),
         is_refused ? "may this user use it? (a container needs --device /dev/fuse)"
                    : "is the fuse module loaded? (a container needs --device /dev/fuse)");
  }
  if (!IsRoot() && !IsInPath("fusermount3")) {
    Fail(ENOENT, "fusermount3 is not installed, and only root can mount without it");
  }
}

namespace {

class HidingFolder final : public ForwardingFolder {
 public:
  // `name` is that of the first directory on the way, `rest` the path from there; empty: it is the
  // one to hide.
  HidingFolder(FolderPtr folder, std::string name, std::string rest)
      : ForwardingFolder(std::move(folder)), name_(std::move(name)), rest_(std::move(rest)) {}

  std::vector<std::string> ListFolders() const override {
    std::vector<std::string> names = ForwardingFolder::ListFolders();
    if (rest_.empty()) std::erase(names, name_);
    return names;
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    if (name != name_) return ForwardingFolder::OpenFolder(name);
    if (rest_.empty()) return nullptr;
    FolderPtr opened = ForwardingFolder::OpenFolder(name);
    return opened == nullptr ? nullptr : MakeHidingFolder(std::move(opened), rest_);
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    if (name == name_ && rest_.empty()) return std::nullopt;
    return ForwardingFolder::Find(name);
  }

 private:
  const std::string name_;
  const std::string rest_;
};

}  // namespace

FolderPtr MakeHidingFolder(FolderPtr folder, const std::string& path) {
  const size_t slash = path.find('/');
  std::string rest = slash == std::string::npos ? "" : path.substr(slash + 1);
  return std::make_shared<HidingFolder>(std::move(folder), path.substr(0, slash), std::move(rest));
}

}  // namespace ckptfs
