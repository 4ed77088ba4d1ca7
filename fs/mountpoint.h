// A mount point, the checks before a mount, and a source without its mount point.
//
// While a checkpoint is read, the owner of the directory above the mount point could replace it by
// a link: root would then mount over a directory of the owner's choice. So the mount point is held
// open from the check to the mount.

#pragma once

#include <string>

#include "parser/base/fd.h"
#include "parser/io/folder.h"

namespace ckptfs {

// A directory to mount on. Prepare() creates a missing one if its parent exists.
class Mountpoint {
 public:
  // Checks that `path` can be a mount point: a directory that is not a mount and empty, unless
  // `may_cover`, or a name in a directory that is writable. Throws Error that names it.
  Mountpoint(const std::string& path, bool may_cover);

  Mountpoint(Mountpoint&& other) noexcept;
  Mountpoint(const Mountpoint&) = delete;
  Mountpoint& operator=(const Mountpoint&) = delete;
  Mountpoint& operator=(Mountpoint&&) = delete;

  // Removes the directory as Remove() does.
  ~Mountpoint();

  // Without links and dots.
  const std::string& path() const { return path_; }

  // Creates a missing directory. Throws Error that names the mount point, ESTALE if it was replaced
  // since it was checked. Call it just before the mount.
  void Prepare();

  // The directory itself, opened with O_PATH, below a later mount. Precondition: Prepare() was
  // called.
  const Fd& directory() const { return directory_; }

  // The root of the file system that is mounted there, or the directory, opened with O_PATH;
  // invalid if the name does not exist.
  Fd Top() const;

  // The current path of the directory, which is path() unless it was moved.
  std::string CurrentPath() const;

  // The directory above it, opened with O_PATH.
  const Fd& parent() const { return parent_; }

  // Removes the directory if Prepare() has created it, nothing is mounted on it, and it is empty.
  void Remove() const noexcept;

 private:
  void CheckParent(const std::string& path);
  void Make();

  std::string path_;
  Fd parent_;
  Fd directory_;
  bool is_made_ = false;
};

// Checks that FUSE is available, and permitted for this user. Throws Error.
void CheckFuse();

// Returns `folder` without the directory at `path`, which is relative to it: the mount point, where
// the program would read from itself.
FolderPtr MakeHidingFolder(FolderPtr folder, const std::string& path);

}  // namespace ckptfs
