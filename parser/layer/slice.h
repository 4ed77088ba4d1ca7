// A part of a source as a source of its own.

#pragma once

#include <cassert>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/io/byte_source.h"
#include "parser/io/immediate.h"

namespace ckptfs {

// For what counts its offsets from its own beginning, but lies in the middle of a file.
class Slice final : public ByteSource, public Immediate {
 public:
  explicit Slice(Extent extent) : extent_(std::move(extent)) {}

  std::string name() const override { return extent_.source->name(); }
  uint64_t size() const override { return extent_.length; }
  timespec modified() const override { return extent_.source->modified(); }
  Verdict verdict() const override { return extent_.source->verdict(); }
  bool is_hole() const override { return extent_.source->is_hole(); }
  bool is_remote() const override { return extent_.source->is_remote(); }
  bool is_immediate() const override { return IsImmediate(*extent_.source); }
  void AdviseFile(ByteRange range) const override {
    extent_.source->AdviseFile({.offset = extent_.offset + range.offset, .length = range.length});
  }
  void Prefetch(std::span<const ByteRange> ranges) const override {
    std::vector<ByteRange> moved(ranges.begin(), ranges.end());
    for (ByteRange& range : moved) range.offset += extent_.offset;
    extent_.source->Prefetch(moved);
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    extent_.source->ReadAt(extent_.offset + offset, buffer);
  }

 private:
  const Extent extent_;
};

}  // namespace ckptfs
