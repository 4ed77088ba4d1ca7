// Sources that can be read at once in part.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ckptfs {

// A source some reads of which are immediate (Immediate): a cache, where it has the bytes.
class PartlyImmediate {
 public:
  PartlyImmediate() = default;
  PartlyImmediate(const PartlyImmediate&) = delete;
  PartlyImmediate& operator=(const PartlyImmediate&) = delete;

  // Reads as ByteSource::ReadAt does if that is immediate. Returns whether it is; if not, `buffer`
  // may have changed.
  virtual bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const = 0;

 protected:
  ~PartlyImmediate() = default;
};

}  // namespace ckptfs
