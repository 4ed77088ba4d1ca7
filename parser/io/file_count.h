// How many files a checkpoint opens on a server.

#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "parser/base/error.h"
#include "parser/io/folder.h"

namespace ckptfs {

// Whatever a checkpoint refers to, the number of requests has an end. May be used by several threads.
class FileCount {
 public:
  // Counts a file that is to be opened. Throws Error(EFBIG) if they are more than kMostFiles.
  void Add() {
    if (opened_.fetch_add(1) >= kMostFiles) {
      Fail(EFBIG, "the checkpoint has more than {} files", kMostFiles);
    }
  }

 private:
  std::atomic<size_t> opened_ = 0;
};

}  // namespace ckptfs
