// From errors to exit codes.

#pragma once

#include <cstdint>
#include <functional>

#include "fs/log.h"
#include "fs/options.h"

namespace ckptfs {

// What the program is doing.
enum class Step : uint8_t {
  kStart,
  kCommandLine,
  kMountpoint,
  kSecret,
  kOpen,
  kParse,
  kMount,
  kServe,
};

ExitCode ExitCodeOf(Step step, int error);

// Whether -o nofail covers this: the checkpoint is not available, because it does not exist, its
// server does not answer, or access is denied. A corrupt checkpoint and a wrong key are failures.
bool IsUnavailable(Step step, int error);

// Runs `body`, which keeps `step` up to date, and returns its exit status, or that of the error that
// it throws, which is logged. With `no_fail`, an unavailable checkpoint is a warning and 0.
int Guard(Log& log, const Step& step, bool no_fail, const std::function<int()>& body);

}  // namespace ckptfs
