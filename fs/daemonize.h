// Becoming a daemon.

#pragma once

#include <functional>
#include <string>

namespace ckptfs {

// Opens /dev/null for what the caller has closed of standard input, output and error, so that no
// file of ours gets one of their numbers. To be called before anything is opened. Throws Error.
void FillStandardDescriptors();

// Calls `serve` in a process of its own, with a function for it to call once it has mounted
// `mountpoint`. Up to then the terminal sees the messages of that process, and the process ends
// with its caller; after that it has no terminal.
//
// Returns in the process of the caller: 0 as soon as the mount answers, or the exit status of a
// daemon that ended before. Returns in the daemon too, with what `serve` returned.
//
// Everything happens in the daemon, also what could be done before the fork, so that whatever
// starts threads or holds connections may do so without a thought. Throws Error. SIGPIPE must be
// ignored.
int Daemonize(const std::string& mountpoint,
              const std::function<int(const std::function<void()>& mounted)>& serve);

}  // namespace ckptfs
