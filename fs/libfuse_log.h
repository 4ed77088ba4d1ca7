// The messages of libfuse in the log.

#pragma once

#include "fs/log.h"

namespace ckptfs {

// Logs what libfuse says as long as it lives. At most one exists at a time.
class FuseLog {
 public:
  // `log` must outlive this.
  explicit FuseLog(Log& log);
  FuseLog(const FuseLog&) = delete;
  FuseLog& operator=(const FuseLog&) = delete;
  ~FuseLog();
};

}  // namespace ckptfs
