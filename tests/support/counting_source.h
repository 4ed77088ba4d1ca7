// A file that behaves like a remote one, and counts round trips.

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Fetches as the range cache does while a checkpoint is opened: in blocks, with more than was
// requested, and nothing twice.
class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(ByteSourcePtr origin, bool is_distant = false);

  std::string name() const override { return origin_->name(); }
  uint64_t size() const override { return origin_->size(); }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override;
  bool is_remote() const override { return true; }
  bool is_distant() const override { return is_distant_; }
  void AdviseFile(ByteRange range) const override;
  void Prefetch(std::span<const ByteRange> ranges) const override;

  // The number of waits for bytes. Eight ranges are fetched concurrently.
  uint64_t round_trips() const;

  // Bytes that were fetched.
  uint64_t fetched() const;

  // The files of the mount that were advised.
  std::vector<ByteRange> expected() const;

 private:
  bool Fetch(uint64_t offset, uint64_t length) const;  // Returns whether any were missing.

  const ByteSourcePtr origin_;
  const bool is_distant_;
  mutable std::mutex mutex_;           // Guards what is below.
  mutable std::set<uint64_t> blocks_;  // The fetched ones.
  mutable uint64_t round_trips_ = 0;
  mutable std::vector<ByteRange> expected_;
};

}  // namespace ckptfs
