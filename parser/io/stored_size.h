// How much of a source is really there.

#pragma once

#include <algorithm>
#include <cstdint>

#include "parser/io/byte_source.h"

namespace ckptfs {

// What a source is, too, if fewer bytes may be stored than it has: a sparse file, a decompressor.
class PartlyStored {
 public:
  virtual ~PartlyStored() = default;

  // In bytes, of all of it.
  virtual uint64_t stored_size() const = 0;
};

inline uint64_t StoredSize(const ByteSource& source) {
  const auto* partly = dynamic_cast<const PartlyStored*>(&source);
  return partly == nullptr ? source.size() : std::min(source.size(), partly->stored_size());
}

// `data` may have no source.
inline uint64_t StoredSize(const Extent& data) {
  return data.source == nullptr ? 0 : std::min(data.length, StoredSize(*data.source));
}

}  // namespace ckptfs
