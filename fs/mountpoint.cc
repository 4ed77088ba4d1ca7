// The kernel refuses to mount with an errno that means five things, and it does not refuse at all
// to cover files or another mount, which then seem to be lost. So we look first.
//
// A mount whose daemon was killed stays in its place and answers everything with ENOTCONN: it is
// neither a directory nor not there, `ls` and `mkdir` make no sense of it, and most people have
// never seen one. It has to be unmounted by hand.

#include "fs/mountpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "parser/error.h"
#include "parser/fd.h"

namespace ckptfs {
namespace {

namespace fs = std::filesystem;

bool IsRoot() { return ::geteuid() == 0; }

// Returns an errno. Has the daemon of the mount asked, if `path` is on one: the kernel remembers
// attributes and would go on telling them after its death.
int Stat(const fs::path& path, struct statx& st) {
  constexpr unsigned kWanted = STATX_TYPE | STATX_INO;
  return ::statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, kWanted, &st) < 0 ? errno : 0;
}

// `path` is on a dead mount: returns where that one is mounted.
std::string DeadMountOf(const std::string& path) {
  fs::path mount = fs::absolute(path).lexically_normal();
  if (!mount.has_filename()) mount = mount.parent_path();  // Of "/mnt/".
  struct statx st = {};
  while (mount.has_relative_path() && Stat(mount.parent_path(), st) == ENOTCONN) {
    mount = mount.parent_path();
  }
  return mount;
}

// Whether a file system is mounted on the directory `path`. The kernel tells since Linux 5.8;
// before that, one sees that the device is not that of the directory above.
bool IsMounted(const std::string& path, const struct statx& st) {
  if ((st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
    return (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  }
  struct statx above = {};
  if (Stat(path + "/..", above) != 0) return false;
  const bool is_root = above.stx_ino == st.stx_ino;
  return is_root || above.stx_dev_major != st.stx_dev_major ||
         above.stx_dev_minor != st.stx_dev_minor;
}

bool IsEmpty(const std::string& path) {
  std::error_code error;
  const bool is_empty = fs::is_empty(path, error);
  if (error) Fail(error.value(), "{}: cannot list it: {}", path, ErrnoText(error.value()));
  return is_empty;
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

std::string CheckedMountpoint(const std::string& path, bool may_cover) {
  struct statx st = {};
  switch (const int error = Stat(path, st)) {
    case 0:
      break;
    case ENOENT:
      Fail(ENOENT, "{}: the mount point does not exist", path);
    case ENOTCONN:
      Fail(ENOTCONN, "{}: a dead mount is still there: its daemon is gone; undo it with: {} {}",
           path, IsRoot() ? "umount" : "fusermount3 -u", DeadMountOf(path));
    default:
      Fail(error, "{}: cannot use the mount point: {}", path, ErrnoText(error));
  }
  if (!S_ISDIR(st.stx_mode)) Fail(ENOTDIR, "{}: the mount point is not a directory", path);
  if (!may_cover) {
    if (IsMounted(path, st)) {
      Fail(EBUSY, "{}: something is mounted there already; to cover it, use -o nonempty", path);
    }
    if (!IsEmpty(path)) {
      Fail(ENOTEMPTY, "{}: the mount point is not empty; to cover its files, use -o nonempty",
           path);
    }
  }
  // For other users fusermount3 mounts, and it wants this.
  if (!IsRoot() && ::access(path.c_str(), W_OK) != 0) {
    Fail(EACCES, "{}: the mount point must be writable by the user who mounts", path);
  }
  std::error_code error;
  fs::path canonical = fs::canonical(path, error);
  if (error) Fail(error.value(), "{}: {}", path, ErrnoText(error.value()));
  return canonical;
}

void CheckFuse() {
  constexpr const char* kDevice = "/dev/fuse";
  const Fd device(::open(kDevice, O_RDWR | O_CLOEXEC));
  if (device.number() < 0) {
    const int error = errno;
    const bool is_refused = error == EACCES || error == EPERM;
    Fail(error, "{}: {}: {}", kDevice, ErrnoText(error),
         is_refused ? "may this user or container use it?" : "is the fuse module loaded?");
  }
  if (!IsRoot() && !IsInPath("fusermount3")) {
    Fail(ENOENT, "fusermount3 is not installed, and only root can mount without it");
  }
}

}  // namespace ckptfs
