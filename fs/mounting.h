// Mounting and unmounting: entries in the kernel's table of mounts.

#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "fs/mountpoint.h"
#include "fs/process.h"

namespace ckptfs {

struct MountSettings {
  std::string source;  // As the table of mounts shows it.
  bool allow_other = false;
  bool auto_unmount = false;
};

// Mounted as long as it lives.
class Mounting {
 public:
  // Mounts `session` on `mountpoint`, which is prepared: root on the directory that was checked,
  // whatever its name leads to by now; for other users fusermount3 mounts, which checks it itself.
  // `session` was made with the same settings and must outlive this. Throws Error that names the
  // mount point.
  Mounting(fuse_session* session, Mountpoint mountpoint, const MountSettings& settings);
  Mounting(const Mounting&) = delete;
  Mounting& operator=(const Mounting&) = delete;

  // Unmounts it, and nothing else that may be mounted there by now; removes the directory if it was
  // made for the mount.
  ~Mounting();

 private:
  // The root of the mount, opened with O_PATH, which keeps it busy; invalid if it is missing.
  Fd Root() const;
  void MountAsRoot(const MountSettings& settings);
  void MountAsUser();
  void FindDevice();
  void Unmount() const noexcept;
  void UnmountAfterDeath() const;

  fuse_session* const session_;
  Mountpoint mountpoint_;
  const bool is_root_;
  dev_t device_ = 0;  // Of the mount.
  dev_t below_ = 0;   // Of the directory below it.
  std::unique_ptr<Watchdog> watchdog_;
};

// Unmounts the checkpoint that is mounted on `path`, as root or with fusermount3. Throws Error that
// names it, if no checkpoint is mounted there or if the mount is in use.
void Unmount(const std::string& path);

}  // namespace ckptfs
