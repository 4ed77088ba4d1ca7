// A file that seems to be far away, and counts how often it was gone for.

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

// Fetches as the cache of remote bytes does while a checkpoint is opened: in blocks, with some more
// than was asked for, and nothing twice.
class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(ByteSourcePtr origin);

  std::string name() const override { return origin_->name(); }
  uint64_t size() const override { return origin_->size(); }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override;
  bool is_remote() const override { return true; }
  void AdviseFile(ByteRange range) const override;
  void Prefetch(std::span<const ByteRange> ranges) const override;

  // Times that somebody had to wait for bytes. Eight ranges are fetched side by side.
  uint64_t round_trips() const;

  // Bytes that were fetched.
  uint64_t fetched() const;

  // The files of the mount that were advised.
  std::vector<ByteRange> expected() const;

 private:
  bool Fetch(uint64_t offset, uint64_t length) const;  // Returns whether there was anything to do.

  const ByteSourcePtr origin_;
  mutable std::mutex mutex_;           // Guards what is below.
  mutable std::set<uint64_t> blocks_;  // That are there.
  mutable uint64_t round_trips_ = 0;
  mutable std::vector<ByteRange> expected_;
};

}  // namespace ckptfs
