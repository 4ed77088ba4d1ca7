// Checks of a checkpoint: its completeness, its hashes, and the permissions of its files.

#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "fs/log.h"
#include "fs/options.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// Throws Error(EBADMSG) if the headers show that a tensor is corrupt or missing. The message names
// the first one and their number; `name` is that of the checkpoint.
void CheckWhole(const Checkpoint& checkpoint, std::string_view name);

// Returns the verification of hashes that -o verify= requests. It reports to `log`, which must
// outlive it; null if `verify` is kOff.
std::shared_ptr<const Verification> VerificationFor(Verify verify, Log& log);

// The permissions common to all local files of a checkpoint: allow_other must not expose private
// files. Thread-safe.
class Readers {
 public:
  // Adds those of a file: bits of r--r--r--, and the group that the bits in the middle are for.
  void Add(mode_t permissions, gid_t group);

  // Returns the umask of a mount whose files belong to `group`. The owner of the mount may always
  // read.
  mode_t MaskFor(gid_t group) const;

 private:
  mutable std::mutex mutex_;
  mode_t permissions_ = 0444;
  std::optional<gid_t> group_;
  bool has_groups_ = false;  // Several.
};

}  // namespace ckptfs
