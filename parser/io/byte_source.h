// Where bytes come from.

#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>

#include "parser/base/verification.h"

namespace ckptfs {

// Bytes of a source.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// A fixed-length sequence of bytes that can be read at any offset: a local file, an object in S3,
// the decompressed contents of a zip member, the elements of a transposed tensor. Sources stack: a
// cache or a decoder is a source that reads from another one.
//
// A source never changes once it is open. All methods may be called by several threads at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // What this is, for messages: "s3://bucket/model.pth". Never contains a secret.
  virtual std::string name() const = 0;

  // Length in bytes.
  virtual uint64_t size() const = 0;

  // Fills `buffer` with the bytes starting at `offset`.
  // The range must lie within the source: there are no short reads.
  // Throws Error: EIO or EREMOTEIO if the bytes are not available, ESTALE if they have changed.
  virtual void ReadAt(uint64_t offset, std::span<std::byte> buffer) const = 0;

  // Fills `buffer` with pieces of `length` bytes, one after another; piece i is what starts at
  // `offset` + i * `stride`. The size of `buffer` is a multiple of `length`, which is not 0. Each
  // piece must lie within the source. Throws as ReadAt does.
  virtual void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                            std::span<std::byte> buffer) const {
    for (; !buffer.empty(); offset += stride, buffer = buffer.subspan(length)) {
      ReadAt(offset, buffer.first(length));
    }
  }

  // When the bytes were last changed; the epoch if that is not known.
  virtual timespec modified() const { return {}; }

  // What is known of these bytes as a whole, by the hashes that the checkpoint has of them.
  virtual Verdict verdict() const { return Verdict::kNone; }

  // Whether the bytes are zeros that take no room anywhere.
  virtual bool is_hole() const { return false; }

  // Whether a read may cost a round trip over a network, however few bytes it is for.
  virtual bool is_remote() const { return false; }

  // Says that `range`, which lies within the source, is one file of the mount: who reads its
  // beginning in order is likely to read it to its end. To be called once for each, before the
  // mount. Costs nothing where reading ahead is not ours to do.
  virtual void AdviseFile(ByteRange /*range*/) const {}

  // Says that all of `ranges`, which lie within the source, will be read soon, so that they can be
  // fetched side by side. Returns at once; failures show when they are read.
  virtual void Prefetch(std::span<const ByteRange> /*ranges*/) const {}
};

// Sources are immutable, so they are shared freely.
using ByteSourcePtr = std::shared_ptr<const ByteSource>;

// A contiguous run of bytes in a source.
struct Extent {
  ByteSourcePtr source;
  uint64_t offset = 0;  // In bytes.
  uint64_t length = 0;  // In bytes.
};

}  // namespace ckptfs
