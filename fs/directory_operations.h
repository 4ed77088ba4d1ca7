// The FUSE callbacks for directories.

#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include <cstddef>

namespace ckptfs {

void OpenDirOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* file);
void ReleaseDirOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* file);
void ReadDirOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* file);
void ReadDirPlusOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* file);

}  // namespace ckptfs
