// Archives that contain checkpoints.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"
#include "parser/read_options.h"

namespace ckptfs {

// The limit of decoding for nested archives. The outermost archive creates it and passes it to the
// files in it. Belongs to one thread.
class ArchiveAllowance {
 public:
  static constexpr int kMostDepth = 4;  // Of nested archives; a compressed file counts as one.

  // For an archive of `size` bytes.
  explicit ArchiveAllowance(uint64_t size) : left_(kLeast + std::min(size, kMost) * kPerByte) {}

  // Returns whether `bytes` more may be decoded before the mount, and subtracts them if so.
  bool Spend(uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  // Returns the number of bytes that may still be decoded.
  uint64_t left() const { return left_; }

  int depth = 0;  // Number of archives around the file.

 private:
  // Weights hardly compress; a much larger result is mostly zeros, or an attack.
  static constexpr uint64_t kLeast = uint64_t{32} << 20;  // A tenth of a second.
  static constexpr uint64_t kPerByte = 16;
  static constexpr uint64_t kMost = uint64_t{1} << 48;

  uint64_t left_;
};

// A file of an archive that is not a checkpoint itself, but contains checkpoints, for example a zip
// archive of stable-baselines3 or TabNet, or a tar archive of NeMo.
//
//   policy.pth      a checkpoint: shown as a directory of that name, including dots
//   a/b.ckpt        the same in a directory "a"
//   a/.metadata     a checkpoint in several files: shown as their directory
//   data, x.yaml    a text of at most 1 MiB: shown as a value, JSON as an object or a list
//
// Other files are ignored, and one warning names them.
struct ArchivedFile {
  std::string path;   // Plain names, with '/' between them.
  Record record;      // `is_in_file` means that it is stored in the archive without compression.
  uint64_t cost = 0;  // Of reading all of it, in decompressed bytes; 0 if it is stored.
};

// Reads the checkpoints among the files of an archive of `size` bytes. Messages call it `kind`:
// "zip". Throws Error: ENOTSUP if there is no checkpoint, the error of the first one if none can be
// read, and EFBIG.
Checkpoint ReadArchivedFiles(const std::vector<ArchivedFile>& files, std::string_view kind,
                             uint64_t size, Budget& budget, const ReadOptions& options);

}  // namespace ckptfs
