#include "fs/watchdog.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "parser/base/error.h"

namespace ckptfs {
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

// A signal to the group or the terminal of the caller is not for us.
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
