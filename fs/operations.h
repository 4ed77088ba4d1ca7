// The FUSE callbacks, independent of formats, protocols and layouts.

#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include <atomic>

#include "fs/directory_operations.h"
#include "fs/invalidator.h"
#include "fs/log.h"
#include "fs/namespace.h"
#include "fs/slow_reads.h"

namespace ckptfs {

// The data of the callbacks. Must outlive the session.
struct Mount {
  Namespace& files;
  Log& log;
  uid_t uid = 0;                           // The owner of all files ...
  gid_t gid = 0;                           // ... and their group.
  std::atomic<unsigned> capabilities = 0;  // Of the kernel: FUSE_CAP_*, set by its first request.

  bool is_remote = false;

  // Handles reads of sources that are not immediate, and other requests that may block; null if
  // none does.
  SlowReads* slow_reads = nullptr;

  OpenDirectories open_directories;

  // Receives the files that are found to be corrupt when they are read; may be null.
  Invalidator* invalidator = nullptr;
};

// Returns the callbacks. The userdata of the session must be a `Mount*`. Without `has_attributes`,
// the kernel is informed that there are no extended attributes, and sends no further requests for
// them.
fuse_lowlevel_ops Operations(bool has_attributes);

// The maximum number of pending read-ahead requests of the kernel. With its default of 12, blocked
// readers of a file would soon block all others.
constexpr unsigned kMostReadAhead = 1024;

// The read-ahead of the kernel in bytes. For local files its default of 128 KiB makes reading
// almost twice as slow, and above 1 MiB it gets slower again. For remote files the cache reads
// ahead, and each page fault in the middle of a mapped file fetches this much: at most two blocks
// of the cache.
inline unsigned ReadAheadOf(const Mount& mount) { return mount.is_remote ? 1U << 15 : 1U << 20; }

}  // namespace ckptfs
