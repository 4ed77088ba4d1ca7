// The directory of the segments, and the users that are trusted to write to it.
//
//   ab/ab3f…-0   segment 0 of an object: 64 hexadecimal digits, of which the first two name the
//   ab/ab3f…-1   directory. The hash does not reveal the location of the object
//   lock         held while segments are removed, so that two processes do not remove twice as many
//
// Cached bytes are trusted as those of the server, so only trusted users may write here:
//
// * The directory belongs to the user or to root, and is not world-writable; else it is refused.
// * If only its owner may write to it, a segment must belong to the user or to root, too, and only
//   its owner may write to it.
// * If a group may write to it, all members of the group are trusted: segments may belong to any
//   user, and their group, if it is that of the directory, may write to them.
// * An access control list that lets other users write counts as world-writable.
// * The directories below follow the rules of segments. No symbolic link is followed.
//
// A segment that violates these rules is not read. It is removed if its name is needed and the user
// may remove it.
//
// Directories and segments get their mode from the directory: 0600 in one of 0700, 0660 in one of
// 2770. So the owner of the directory decides whether a cache is shared. Users with read permission
// only can read the cached data.

#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/fd.h"
#include "parser/layer/disk_cache/segment.h"

namespace ckptfs {

// Thread-safe.
class CacheDirectory {
 public:
  // Creates a missing directory with mode 0700. Throws Error if that fails or if it is not trusted.
  explicit CacheDirectory(const std::string& path);

  // Opens a segment. Creates a missing or invalid one if `may_make`. Returns nothing on failure.
  std::optional<Segment> Open(const SegmentId& id, bool may_make) const;

  // The free space in bytes without the last 5 % of the disk; negative if less than these are free.
  int64_t room() const;

  // Removes the least recently used segments, until the others use at most wanted(used) bytes.
  // Keeps those for which `keeps` returns true, if it is not empty: `object` are the hexadecimal
  // digits of SegmentId::object, `used` is the time of the last use. Returns whether the others use
  // at most that: some may not be removable. Also returns false while another process removes
  // segments; after ten seconds this one no longer waits for it, since it may be malicious.
  // Processes that have a removed segment open continue to read it.
  using Keeps = std::function<bool(std::string_view object, timespec used)>;
  bool Shrink(const std::function<uint64_t(uint64_t used)>& wanted, const Keeps& keeps) const;

 private:
  using Clock = std::chrono::steady_clock;

  // A segment in the directory.
  struct Found {
    timespec used = {};  // Time of the last use.
    uint64_t size = 0;   // Allocated bytes.
    std::string name;    // "ab3f…-0".
  };

  // A segment, or why it cannot be opened; none of these after a shortage of descriptors.
  struct Existing {
    std::optional<Segment> segment;
    bool is_missing = false;
    bool is_invalid = false;  // Corrupt, a link or not trusted: it may be removed.
  };

  // Opens one of the 256 directories of segments. Returns an empty descriptor if it is missing or
  // not trusted.
  Fd OpenBelow(const std::string& name, bool may_make) const;

  Existing OpenExisting(int below, const std::string& name, const SegmentId& id) const;

  // Takes the lock. Returns nothing if another process has it; an empty descriptor if it is
  // unavailable.
  std::optional<Fd> Lock() const;

  // Sets the group and the mode of a new file.
  void Share(int made, mode_t mode) const;

  // Whether only trusted users can have written `file`, which has `status`.
  bool IsTrusted(const Fd& file, const struct stat& status) const;

  std::vector<Found> List() const;

  Fd directory_;
  uid_t us_ = 0;
  gid_t group_ = 0;
  mode_t mode_ = 0;
  mutable std::atomic<Clock::rep> busy_since_ =
      0;  // Since when the lock is held by others; 0: free.
};

}  // namespace ckptfs
