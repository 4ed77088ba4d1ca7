#include "fs/unmount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kType = "fuse.ckptfs";

// A line of the table of mounts; see proc(5).
struct MountLine {
  std::string type;
  std::string options;  // Of the file system: "rw,user_id=1000,...".
};

// Undoes the escapes of that table: a backslash and three octal digits.
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr ==
            text.data() + i + 4) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// What is mounted on `path`, if anything: the last line counts, which covers those before it.
std::optional<MountLine> FindMount(const std::string& path) {
  std::optional<MountLine> found;
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string id;
    std::string parent;
    std::string device;
    std::string root;
    std::string place;
    words >> id >> parent >> device >> root >> place;
    if (Unescaped(place) != path) continue;
    std::string word;
    while (words >> word && word != "-") {
    }
    MountLine mount;
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

// Whether the process of `entry`, in /proc, has its working directory or a file below `path`.
bool Uses(const fs::path& entry, const std::string& path) {
  std::error_code error;
  if (IsBelow(fs::read_symlink(entry / "cwd", error), path)) return true;
  for (fs::directory_iterator each(entry / "fd", error), end; !error && each != end;
       each.increment(error)) {
    std::error_code gone;
    if (IsBelow(fs::read_symlink(each->path(), gone), path)) return true;
  }
  return false;
}

// Returns ": python3 (1234), bash (5678)", as far as this user may see it.
std::string UsersOf(const std::string& path) {
  constexpr size_t kMost = 3;
  std::vector<std::string> users;
  std::error_code error;
  for (fs::directory_iterator each("/proc", error), end; !error && each != end;
       each.increment(error)) {
    const std::string number = each->path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!Uses(each->path(), path)) continue;
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
