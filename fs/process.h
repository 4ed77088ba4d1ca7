// Processes: their preparation, the daemon that serves a mount, and the watchdog that unmounts it.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parser/base/fd.h"

namespace ckptfs {

// Prepares the process of a program, before it opens anything. Opens /dev/null for closed standard
// input, output and error, so that no other file gets one of their numbers; makes broken pipes and
// full disks error codes instead of signals; allows as many open files as the system does; and
// excludes this process, which may hold secrets, from core dumps and from inspection by other
// processes of the same user. Throws Error.
void PrepareProcess();

// Calls `serve` in a process of its own, with a function for it to call once it has mounted
// `mountpoint`. Up to then the terminal sees the messages of that process, and the process ends
// with its caller; after that it has no terminal.
//
// Returns in the process of the caller: 0 as soon as the mount answers, or the exit status of a
// daemon that ended before. Returns in the daemon too, with what `serve` returned.
//
// Everything happens in the daemon, also work that could be done before the fork, so that code that
// starts threads or holds connections is safe. Throws Error. SIGPIPE must be ignored.
int Daemonize(const std::string& mountpoint,
              const std::function<int(const std::function<void()>& mounted)>& serve);

// A process beside this one, from the construction to the end of this process or of this object,
// whichever comes first: then it calls `undo` and ends.
class Watchdog {
 public:
  // `undo` runs in a copy of this process that has one thread, no terminal, and no descriptor but
  // the three standard ones and `kept`. It must do nothing if it is not needed. Throws Error.
  Watchdog(const std::function<void()>& undo, std::vector<int> kept);

 private:
  Fd alive_;  // Closed by the kernel at the end of this process.
};

}  // namespace ckptfs
