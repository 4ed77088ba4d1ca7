#include "fs/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs {
namespace {

void FillStandardDescriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(standard, F_GETFD) >= 0) continue;
    // NOLINTNEXTLINE(android-cloexec-open): a child has these three, too.
    if (::open("/dev/null", O_RDWR) != standard) FailErrno("cannot open /dev/null");
  }
}

// A checkpoint in many files keeps a descriptor for each, and the usual limit is 1024.
void RaiseFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void HideMemory() {
  constexpr rlimit kNone = {};
  ::setrlimit(RLIMIT_CORE, &kNone);
  ::prctl(PR_SET_DUMPABLE, 0);
}

}  // namespace

void PrepareProcess() {
  FillStandardDescriptors();
  // Of a caller that has left, a closed connection, a temporary file that may not grow.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  RaiseFileLimit();
  HideMemory();
}

namespace {

// Until the mount, the daemon ends with its caller: after Ctrl-C and any other cause. `caller`
// is a process that may have ended before.
void FollowCaller(pid_t caller) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != caller) std::raise(SIGTERM);
}

void LeaveTerminal() {
  ::prctl(PR_SET_PDEATHSIG, 0);
  ::setsid();
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(null.number(), standard) < 0) FailErrno("cannot leave the terminal");
  }
  if (::chdir("/") < 0) FailErrno("cannot leave the directory");
}

int StatusOf(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) FailErrno("cannot wait for the daemon");
  }
  if (!WIFEXITED(status)) {
    const int signal = WTERMSIG(status);
    Fail(ECHILD, "the daemon was killed by signal {} ({}) before it had mounted", signal,
         ::strsignal(signal));
  }
  return WEXITSTATUS(status);
}

// Waits for a byte from the daemon, which means mounted, or for its end.
bool IsMounted(const Fd& from_daemon) {
  char byte = 0;
  ssize_t n = 0;
  do {
    n = ::read(from_daemon.number(), &byte, 1);
  } while (n < 0 && errno == EINTR);
  return n == 1;
}

}  // namespace

int Daemonize(const std::string& mountpoint,
              const std::function<int(const std::function<void()>& mounted)>& serve) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) FailErrno("cannot make a pipe");
  Fd from_daemon(ends[0]);
  Fd to_caller(ends[1]);

  const pid_t caller = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) FailErrno("cannot start the daemon");
  if (child == 0) {
    FollowCaller(caller);
    from_daemon = Fd();
    return serve([&] {
      LeaveTerminal();
      if (::write(to_caller.number(), "m", 1) < 0) FailErrno("the caller is gone");
      to_caller = Fd();
    });
  }
  to_caller = Fd();  // The daemon's end is the only one now: if it dies, the read below returns.
  if (!IsMounted(from_daemon)) return StatusOf(child);
  struct stat st = {};
  if (::stat(mountpoint.c_str(), &st) == 0) return 0;
  // The errors of a mount whose daemon has died.
  if (errno == ENOTCONN || errno == ECONNABORTED) return StatusOf(child);
  FailErrno("{}: the mount does not answer", mountpoint);
}

namespace {

// Closes all descriptors but the standard ones and `kept`.
void CloseOthers(std::vector<int> kept) {
  std::ranges::sort(kept);
  unsigned first = STDERR_FILENO + 1;
  for (const int number : kept) {
    const auto next = static_cast<unsigned>(number);
    if (next < first) continue;
    if (next > first) ::close_range(first, next - 1, 0);
    first = next + 1;
  }
  ::close_range(first, ~0U, 0);
}

// A signal to the group or the terminal of the caller is not for this process.
void LeaveCaller() {
  ::setsid();
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(null.number(), standard);
  }
  [[maybe_unused]] const int result = ::chdir("/");
}

}  // namespace

Watchdog::Watchdog(const std::function<void()>& undo, std::vector<int> kept) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) FailErrno("cannot make a pipe");
  const Fd end(ends[0]);
  alive_ = Fd(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) FailErrno("cannot start the process for auto_unmount");
  if (child != 0) return;
  LeaveCaller();
  kept.push_back(end.number());
  CloseOthers(std::move(kept));
  char byte = 0;
  while (::read(end.number(), &byte, 1) < 0 && errno == EINTR) {
  }
  undo();
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace ckptfs
