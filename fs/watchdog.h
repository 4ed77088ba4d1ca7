// Does what a process can no longer do itself when it is killed.

#pragma once

#include <functional>
#include <vector>

#include "parser/base/fd.h"

namespace ckptfs {

// A process beside this one, from the construction to the end of this process or of this object,
// whichever comes first: then it calls `undo` and ends.
class Watchdog {
 public:
  // `undo` runs in a copy of this process that has one thread, no terminal, and no descriptor but
  // the three standard ones and `kept`. It must do nothing if there is nothing to be done. Throws
  // Error.
  Watchdog(const std::function<void()>& undo, std::vector<int> kept);

 private:
  Fd alive_;  // Closed by the kernel at the end of this process.
};

}  // namespace ckptfs
