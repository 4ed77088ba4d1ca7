// Whether a process that waits for a file still wants to.

#pragma once

#include <sys/types.h>

namespace ckptfs {

// To be asked when a thread has got a signal while it waits for us: whether it is one that ends it,
// or by which its user wants it to stop. Others are not worth an error: whoever has mapped the file
// into memory would be killed by it, be the signal nothing but a timer's. A thread that cannot be
// looked at has given up.
bool HasGivenUp(pid_t thread) noexcept;

// Whether a thread has ended. One that we cannot look at has not.
bool HasEnded(pid_t thread) noexcept;

}  // namespace ckptfs
