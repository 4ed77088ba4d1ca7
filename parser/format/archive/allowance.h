// What archives in archives may cost together.

#pragma once

#include <algorithm>
#include <cstdint>

namespace ckptfs {

// The outermost archive makes one, and hands it down to the files in it. Belongs to one thread.
class ArchiveAllowance {
 public:
  static constexpr int kMostDepth = 4;  // Archives in one another; a compressed file counts as one.

  // For an archive of `size` bytes.
  explicit ArchiveAllowance(uint64_t size) : left_(kLeast + std::min(size, kMost) * kPerByte) {}

  // Whether `bytes` more may be decoded before the mount; then they count.
  bool Spend(uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  // What may still be decoded, in bytes.
  uint64_t left() const { return left_; }

  int depth = 0;  // How many archives the file lies in.

 private:
  // Weights hardly compress; what decodes to much more is mostly zeros, or an attack.
  static constexpr uint64_t kLeast = uint64_t{32} << 20;  // A tenth of a second.
  static constexpr uint64_t kPerByte = 16;
  static constexpr uint64_t kMost = uint64_t{1} << 48;

  uint64_t left_;
};

}  // namespace ckptfs
