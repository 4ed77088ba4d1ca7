#include "fs/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "parser/base/error.h"

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

}  // namespace ckptfs
