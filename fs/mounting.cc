// libfuse mounts by name, and unmounts by name whatever is mounted there. So root calls mount(2)
// and umount2(2) here, with descriptors for names, and libfuse is given the device with the session
// in it. Its auto_unmount is not used: that process of fusermount3 cannot see a mount without
// allow_other, and leaves it as it is.

#include "fs/mounting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr std::string_view kPermissionHint =
    " (mounting takes the capability CAP_SYS_ADMIN; a container needs --cap-add SYS_ADMIN, "
    "--device /dev/fuse, and AppArmor and seccomp profiles that permit mount)";

std::string PathOf(const Fd& fd) { return fmt::format("/proc/self/fd/{}", fd.number()); }

// Keeps what is written to standard error, and drops what is written to standard output, as long as
// it lives: fusermount3 has no other way to report why it does not mount.
class CapturedOutput {
 public:
  CapturedOutput()
      : text_(::memfd_create("ckptfs", MFD_CLOEXEC)),
        null_(::open("/dev/null", O_RDWR | O_CLOEXEC)),
        output_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)),
        error_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    if (text_.number() < 0 || null_.number() < 0 || output_.number() < 0 || error_.number() < 0) {
      FailErrno("cannot redirect the output");
    }
    ::dup2(null_.number(), STDOUT_FILENO);
    ::dup2(text_.number(), STDERR_FILENO);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;
  ~CapturedOutput() {
    ::dup2(output_.number(), STDOUT_FILENO);
    ::dup2(error_.number(), STDERR_FILENO);
  }

  // The first line: the others are consequences of it.
  std::string Line() const {
    std::array<char, 1024> buffer = {};
    const ssize_t n = ::pread(text_.number(), buffer.data(), buffer.size(), 0);
    const std::string_view text(buffer.data(), n < 0 ? 0 : static_cast<size_t>(n));
    return n <= 0 ? "libfuse reports no reason" : std::string(text.substr(0, text.find('\n')));
  }

 private:
  Fd text_;
  Fd null_;
  Fd output_;
  Fd error_;
};

// Does not ask the daemon. Returns 0 if `fd` is invalid.
dev_t DeviceOf(const Fd& fd) {
  struct statx st = {};
  if (::statx(fd.number(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) < 0) return 0;
  return makedev(st.stx_dev_major, st.stx_dev_minor);
}

// Whether the kernel has ended a session: it is unmounted, or its connection is aborted.
bool IsEnded(int session) {
  pollfd state = {.fd = session, .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0;
}

// Whether the mount on `mountpoint` has lost its connection.
bool IsDead(const Mountpoint& mountpoint) noexcept try {
  struct statx st = {};
  return ::statx(AT_FDCWD, mountpoint.CurrentPath().c_str(),
                 AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_MODE, &st) < 0 &&
         (errno == ENOTCONN || errno == ECONNABORTED);
} catch (const std::exception&) {
  return false;  // Out of memory for the name.
}

// Unmounts the file system whose root is `root`, even while it is in use.
void UnmountAsRoot(const Fd& root) noexcept try {
  ::umount2(PathOf(root).c_str(), MNT_DETACH);
} catch (const std::exception&) {
  // Out of memory for the name: it stays mounted.
}

}  // namespace

Mounting::Mounting(fuse_session* session, Mountpoint mountpoint, const MountSettings& settings)
    : session_(session), mountpoint_(std::move(mountpoint)), is_root_(::geteuid() == 0) {
  if (is_root_) {
    MountAsRoot(settings);
  } else {
    MountAsUser();
  }
  if (!settings.auto_unmount) return;
  try {
    watchdog_ = std::make_unique<Watchdog>(
        [this] { UnmountAfterDeath(); },
        std::vector{mountpoint_.directory().number(), mountpoint_.parent().number()});
  } catch (const Error&) {
    Unmount();
    throw;
  }
}

Mounting::~Mounting() { Unmount(); }

void Mounting::Unmount() const noexcept {
  if (is_root_) {
    // The number of the device is reused once it is unmounted: a mount that was made
    // there since then may have the same number.
    const int session = fuse_session_fd(session_);
    if (IsEnded(session) && !IsDead(mountpoint_)) return;
    const Fd root = Root();
    // Ends all requests first: the unmount may wait for them.
    const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (null.number() >= 0) ::dup3(null.number(), session, O_CLOEXEC);
    if (root.number() >= 0) UnmountAsRoot(root);
    return;
  }
  Fd root = Root();
  // libfuse checks whether it is still mounted, but not whether another mount covers it.
  const bool is_covered = root.number() < 0 && DeviceOf(mountpoint_.Top()) != below_;
  root = Fd();
  if (!is_covered) fuse_session_unmount(session_);
}

Fd Mounting::Root() const {
  Fd top = mountpoint_.Top();
  return device_ != 0 && DeviceOf(top) == device_ ? std::move(top) : Fd();
}

void Mounting::MountAsRoot(const MountSettings& settings) {
  const Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (device.number() < 0) FailErrno("/dev/fuse");
  const std::string options = fmt::format(
      "fd={},rootmode={:o},user_id={},group_id={},default_permissions{}", device.number(),
      unsigned{S_IFDIR}, ::getuid(), ::getgid(), settings.allow_other ? ",allow_other" : "");
  if (::mount(settings.source.c_str(), PathOf(mountpoint_.directory()).c_str(), "fuse.ckptfs",
              MS_RDONLY | MS_NOSUID | MS_NODEV, options.c_str()) < 0) {
    const int error = errno;
    Fail(error, "{}: cannot mount: {}{}", mountpoint_.path(), ErrnoText(error),
         error == EPERM || error == EACCES ? kPermissionHint : "");
  }
  FindDevice();
  const int given = ::fcntl(device.number(), F_DUPFD_CLOEXEC, 3);  // To libfuse, which closes it.
  if (given < 0 || fuse_session_mount(session_, fmt::format("/dev/fd/{}", given).c_str()) != 0) {
    UnmountAsRoot(Root());
    Fail(EMFILE, "{}: cannot mount: libfuse does not take the device", mountpoint_.path());
  }
}

void Mounting::MountAsUser() {
  const CapturedOutput output;
  if (fuse_session_mount(session_, mountpoint_.path().c_str()) != 0) {
    const std::string line = output.Line();
    const bool is_refused = line.ends_with(ErrnoText(EPERM));
    Fail(EPERM, "{}: cannot mount: {}{}", mountpoint_.path(), line,
         is_refused ? kPermissionHint : "");
  }
  FindDevice();
}

void Mounting::FindDevice() {
  below_ = DeviceOf(mountpoint_.directory());
  device_ = DeviceOf(mountpoint_.Top());
  if (device_ != 0 && device_ != below_) return;
  // The directory has been moved since it was checked.
  device_ = 0;
  const std::string path = mountpoint_.CurrentPath();
  if (is_root_) ::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  Fail(ESTALE, "{}: the mount point was replaced", mountpoint_.path());
}

void Mounting::UnmountAfterDeath() const {
  Fd root = Root();
  const bool is_mounted = root.number() >= 0;
  if (is_mounted && is_root_) UnmountAsRoot(root);
  if (is_mounted && !is_root_) {
    { const Fd closed = std::move(root); }  // It would keep the mount busy.
    const pid_t child = ::fork();
    if (child == 0) {
      ::execlp("fusermount3", "fusermount3", "-u", "-q", "-z", "--", mountpoint_.path().c_str(),
               nullptr);
      ::_exit(EXIT_FAILURE);
    }
    ::waitpid(child, nullptr, 0);
  }
  mountpoint_.Remove();
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kType = "fuse.ckptfs";

// A line of the table of mounts; see proc(5).
struct MountLine {
  std::string id;
  std::string type;
  std::string options;  // Of the file system: "rw,user_id=1000,...".
};

// Undoes the escapes of that table: a backslash and three octal digits.
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto code = text[i] == '\\' && i + 3 < text.size()
                          ? ParseNumber<unsigned>(text.substr(i + 1, 3), 8)
                          : std::nullopt;
    if (code) {
      plain += static_cast<char>(*code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Returns the line of the mount on `path`: the last one, which covers the others.
std::optional<MountLine> FindMount(const std::string& path) {
  std::optional<MountLine> found;
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    MountLine mount;
    std::string parent;
    std::string device;
    std::string root;
    std::string place;
    words >> mount.id >> parent >> device >> root >> place;
    if (Unescaped(place) != path) continue;
    std::string word;
    while (words >> word && word != "-") {
    }
    std::string source;
    words >> mount.type >> source >> mount.options;
    found = std::move(mount);
  }
  return found;
}

bool IsBelow(const std::string& path, const std::string& directory) {
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

// Whether the descriptor `entry`, in /proc/PID/fdinfo, is of the mount `id`.
bool IsOfMount(const fs::path& entry, const std::string& id) {
  std::ifstream info(entry);
  for (std::string name, value; info >> name >> value;) {
    if (name == "mnt_id:") return value == id;
  }
  return false;
}

// Whether the process of `entry`, in /proc, has its working directory or a file below `path`, where
// `id` is mounted. The daemon itself has the directory below the mount, whose path is the same.
bool Uses(const fs::path& entry, const std::string& path, const std::string& id) {
  std::error_code error;
  if (IsBelow(fs::read_symlink(entry / "cwd", error), path)) return true;
  for (fs::directory_iterator each(entry / "fd", error), end; !error && each != end;
       each.increment(error)) {
    std::error_code gone;
    if (IsBelow(fs::read_symlink(each->path(), gone), path) &&
        IsOfMount(entry / "fdinfo" / each->path().filename(), id)) {
      return true;
    }
  }
  return false;
}

// Returns ": python3 (1234), bash (5678)", as far as this user may see it.
std::string UsersOf(const std::string& path) {
  constexpr size_t kMost = 3;
  const std::string self = fmt::to_string(::getpid());
  const std::optional<MountLine> mount = FindMount(path);
  std::vector<std::string> users;
  std::error_code error;
  for (fs::directory_iterator each("/proc", error), end; !error && each != end;
       each.increment(error)) {
    const std::string number = each->path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    if (number == self || !mount || !Uses(each->path(), path, mount->id)) continue;
    std::string name;
    std::ifstream comm(each->path() / "comm");
    std::getline(comm, name);
    users.push_back(fmt::format("{} ({})", name, number));
    if (users.size() == kMost) break;
  }
  return users.empty() ? "" : fmt::format(" by {}", fmt::join(users, ", "));
}

[[noreturn]] void FailBusy(const std::string& path, const std::string& real_path) {
  Fail(EBUSY, "{}: cannot unmount: in use{}; close its files and leave the directory first", path,
       UsersOf(real_path));
}

// Runs `fusermount3 -u` and returns the first line that it prints; empty if it succeeds.
std::string RunFusermount(const std::string& path) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) FailErrno("cannot make a pipe");
  const Fd output(ends[0]);
  Fd input(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.number(), STDERR_FILENO);
  std::string words[] = {"fusermount3", "-u", "--", path};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                             nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Fail(error, "{}: cannot run fusermount3: {}", path, ErrnoText(error));
  { const Fd closed = std::move(input); }
  std::array<char, 1024> text = {};
  const ssize_t n = ::read(output.number(), text.data(), text.size());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) FailErrno("cannot wait for fusermount3");
  }
  if (status == 0) return "";
  const std::string_view line(text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return line.empty() ? "fusermount3 failed" : std::string(line.substr(0, line.find('\n')));
}

}  // namespace

void Unmount(const std::string& path) {
  std::string real_path;
  {
    // Not by its name alone: it may be a link, and a dead mount has no attributes.
    const Fd file(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (file.number() < 0) FailErrno("{}: cannot unmount", path);
    real_path = fs::read_symlink(fmt::format("/proc/self/fd/{}", file.number()));
  }
  const auto mount = FindMount(real_path);
  if (!mount) Fail(EINVAL, "{}: cannot unmount: nothing is mounted there", path);
  if (mount->type != kType) {
    Fail(EINVAL, "{}: cannot unmount: a file system of type {} is mounted there, and no checkpoint",
         path, mount->type);
  }
  if (::geteuid() == 0) {
    if (::umount2(real_path.c_str(), UMOUNT_NOFOLLOW) == 0) return;
    if (errno == EBUSY) FailBusy(path, real_path);
    FailErrno("{}: cannot unmount", path);
  }
  if (("," + mount->options + ",").find(fmt::format(",user_id={},", ::getuid())) ==
      std::string::npos) {
    Fail(EPERM, "{}: cannot unmount: another user has mounted it", path);
  }
  const std::string refusal = RunFusermount(real_path);
  if (refusal.empty()) return;
  if (refusal.find(ErrnoText(EBUSY)) != std::string::npos) FailBusy(path, real_path);
  Fail(EPERM, "{}: cannot unmount: {}", path, refusal);
}

}  // namespace ckptfs
