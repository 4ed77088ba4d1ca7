#include "fs/readers.h"

#include <sys/stat.h>

namespace ckptfs {

void Readers::Add(mode_t permissions, gid_t group) {
  const std::lock_guard lock(mutex_);
  has_groups_ = has_groups_ || (group_ && *group_ != group);
  group_ = group;
  permissions_ &= permissions;
}

mode_t Readers::MaskFor(gid_t group) const {
  const std::lock_guard lock(mutex_);
  const bool others = (permissions_ & S_IROTH) != 0;
  // To the members of another group the files are what they are to others.
  const bool is_theirs = !group_ || (!has_groups_ && *group_ == group);
  const bool members = (permissions_ & S_IRGRP) != 0 && (is_theirs || others);
  return (members ? 0U : S_IRWXG) | (others ? 0U : S_IRWXO);
}

}  // namespace ckptfs
