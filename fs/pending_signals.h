// Whether a process that waits for a file still wants to.

#pragma once

#include <sys/types.h>

namespace ckptfs {

// To be asked when a thread has got a signal while it waits for us: whether it is one that ends it,
// or by which its user wants it to stop. Others are not worth an error: whoever has mapped the file
// into memory would be killed by it, be the signal nothing but a timer's. A thread that cannot be
// looked at has given up.
bool HasGivenUp(pid_t thread) noexcept;

// As HasGivenUp, of a thread of which the kernel has not said that it has got a signal: it does not
// where it reads ahead, nor in direct I/O. One that cannot be looked at has not given up.
bool IsGone(pid_t thread) noexcept;

}  // namespace ckptfs
