// The process of a program, before it opens anything.

#pragma once

namespace ckptfs {

// Opens /dev/null for closed standard input, output and error, so that no other file gets one of their
// numbers; makes broken pipes and full disks error codes instead of signals; allows as many open files
// as the system does; and excludes this process, which may hold secrets, from core dumps and from
// inspection by other processes of the same user. Throws Error.
void PrepareProcess();

}  // namespace ckptfs
