// Unnamed temporary files, and the disk space that a mount may use for them.

#pragma once

#include <atomic>
#include <cstdint>

#include "parser/base/fd.h"

namespace ckptfs {

// Makes an unnamed file in $TMPDIR, or else in /var/tmp, for reading and writing. On failure
// returns an empty descriptor and sets errno.
Fd MakeTemporaryFile();

// Returns the free space of that directory in bytes; 0 if it is unknown.
uint64_t FreeForTemporaryFiles();

// One account for all scratch files of a mount (layer/scratch_file.h). Thread-safe.
class ScratchSpace {
 public:
  ScratchSpace() = default;
  explicit ScratchSpace(uint64_t bytes) : left_(bytes) {}

  // Allows so much, once the checkpoint is parsed. Until then nothing is allowed: a file that is
  // refused must not have filled the disk.
  void Allow(uint64_t bytes) { left_ = bytes; }

  // Takes `bytes`. Returns whether there were as many.
  bool Take(uint64_t bytes) {
    uint64_t left = left_;
    do {
      if (bytes > left) return false;
    } while (!left_.compare_exchange_weak(left, left - bytes));
    return true;
  }

  // Returns reserved bytes.
  void Return(uint64_t bytes) { left_ += bytes; }

 private:
  std::atomic<uint64_t> left_ = 0;
};

}  // namespace ckptfs
