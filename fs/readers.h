// Who may read a checkpoint, and therefore its mount: allow_other must not show to everybody what
// is somebody's own.

#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>

namespace ckptfs {

// The permissions that all local files of a checkpoint have. Thread-safe.
class Readers {
 public:
  // Adds those of a file: bits of r--r--r--, and whose group those in the middle are.
  void Add(mode_t permissions, gid_t group);

  // Returns the umask of a mount whose files belong to `group`. The owner may always read, because
  // somebody who can mount could.
  mode_t MaskFor(gid_t group) const;

 private:
  mutable std::mutex mutex_;
  mode_t permissions_ = 0444;
  std::optional<gid_t> group_;
  bool has_groups_ = false;  // Several.
};

}  // namespace ckptfs
