// The directory that segments are kept in, and whom it lets put them there.
//
//   ab/ab3f…-0   segment 0 of an object: 64 hexadecimal digits, of which the first two name the
//   ab/ab3f…-1   directory. The hash tells nothing of where the object is to who does not know it
//   lock         held by who removes segments, so that two do not remove twice as many
//
// Bytes that are kept here are taken for those of the server, so nobody may write here whom the
// user does not trust:
//
// * The directory belongs to us or to root, and not everybody may write in it; else it is refused.
// * Where only its owner may write in it, a segment must belong to us or to root, too, and only its
//   owner may write to it.
// * Where a group may write in it, who made it so has said that all of that group are trusted:
//   then segments may belong to anybody, and their group, if it is that of the directory, may write
//   to them.
// * An access control list that lets anybody else write counts as if everybody could.
// * The directories below follow the rules of segments. No symbolic link is followed.
//
// What breaks these rules is not read. It is removed if its place is needed and if we may.
//
// What we make gets its mode from the directory: 0600 in one of 0700, 0660 in one of 2770. So to
// share a cache is the choice of who makes its directory. Who may only read it reads what others
// keep there.

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
#include <vector>

#include "parser/base/fd.h"
#include "parser/layer/disk_cache/segment.h"

namespace ckptfs {

// Thread-safe.
class CacheDirectory {
 public:
  // Makes it, with mode 0700, if it is not there. Throws Error if it cannot be had or is refused.
  explicit CacheDirectory(const std::string& path);

  // Opens a segment. If it is not there, or is not right, makes it if `is_wanted`, else returns
  // nothing. Returns nothing if that fails, too; errno says why then.
  std::optional<Segment> Open(const SegmentId& id, bool is_wanted) const;

  // How many bytes more can be kept without taking the last 5 % of the disk; what is missing to
  // these 5 % is negative.
  int64_t room() const;

  // Removes those segments that were not in use for the longest time, until the others take as many
  // bytes as `wanted` says when it is told how many they all take. Returns whether they take no
  // more than that now: some may not be ours to remove. Returns false, too, while another process
  // is at it; after ten seconds nobody waits for that one any more, since it need not be honest.
  // Who still has a removed segment open goes on reading it.
  bool Shrink(const std::function<uint64_t(uint64_t used)>& wanted) const;

 private:
  using Clock = std::chrono::steady_clock;

  // A segment that is there.
  struct Found {
    timespec used = {};  // When it was last.
    uint64_t size = 0;   // What it takes of the disk, in bytes.
    std::string name;    // "ab3f…-0".
  };

  // Opens one of the 256 directories that segments are in. Returns no descriptor if it is not there
  // or not to be trusted, which errno says.
  Fd OpenBelow(const std::string& name, bool is_wanted) const;

  // Opens a segment that is there and right. Returns nothing if there is none; errno says why then:
  // ENOENT, or, if it may be removed, EPERM, ELOOP or EBADMSG, or what else has failed.
  std::optional<Segment> OpenThere(int below, const std::string& name, const SegmentId& id) const;

  Fd OpenFile(int below, const std::string& name, bool& may_write) const;
  Fd MakeFile(int below, const std::string& name) const;

  // Takes the lock. Nothing if another process has it; no descriptor if nobody can have it.
  std::optional<Fd> Lock() const;

  // Gives what we have made the group and the mode it should have.
  void Share(int made, mode_t mode) const;

  // Whether what `file` is, and `status` is of, can only have been written by those we trust.
  bool IsTrusted(const Fd& file, const struct stat& status) const;

  std::vector<Found> List() const;

  Fd directory_;
  uid_t us_ = 0;
  gid_t group_ = 0;
  mode_t mode_ = 0;
  mutable std::atomic<Clock::rep> busy_since_ = 0;  // The lock is taken; 0: it is not.
};

}  // namespace ckptfs
