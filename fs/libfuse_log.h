// The messages of libfuse in the log.

#pragma once

#include "fs/log.h"

namespace ckptfs {

// Logs the messages of libfuse while it exists. At most one exists at a time.
class FuseLog {
 public:
  // `log` must outlive this.
  explicit FuseLog(Log& log);
  FuseLog(const FuseLog&) = delete;
  FuseLog& operator=(const FuseLog&) = delete;
  ~FuseLog();
};

}  // namespace ckptfs
