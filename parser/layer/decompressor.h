// Decompressors: decoders at positions of compressed runs of bytes.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "parser/base/mutex.h"
#include "parser/codec/decoder.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// A position at which decoding of a deflated stream can resume.
struct AccessPoint {
  uint64_t position = 0;  // Decoded bytes before it.
  uint64_t bit = 0;       // Bits of the stream before it.
};

// A compressed run of bytes, and its decoded size.
struct Compressed {
  Coding coding = Coding::kDeflate;
  Extent data;
  uint64_t size = 0;
};

// Belongs to one thread at a time.
class Decompressor {
 public:
  // Starts at the beginning. Reads the head of the stream; throws as reading `compressed.data`
  // does.
  explicit Decompressor(const Compressed& compressed);

  // Starts at an access point. `window` is the kDeflateWindow bytes before it.
  Decompressor(const Compressed& compressed, const AccessPoint& access_point,
               std::span<const std::byte> window);

  // The number of bytes decoded before this point.
  uint64_t position() const { return position_; }

  // The maximum memory, in bytes.
  size_t memory() const { return decoder_->memory(); }

  // Decodes the next bytes. Returns their number: the size of `output`, unless the stream has ended
  // or is corrupt. Throws Error as reading the source does, ENOMEM, and EINTR (cancellation.h); it
  // must not be used afterwards.
  size_t Decode(std::span<std::byte> output);

  // Decodes and discards `length` bytes. Returns false if the stream ends before.
  bool Skip(uint64_t length);

  // The last access point within the bytes that the last Decode returned, with its whole window in
  // them.
  const std::optional<AccessPoint>& access_point() const { return access_point_; }

  // Why Decode returned fewer bytes than requested; empty at the end of the stream.
  const std::string& damage() const { return damage_; }

  // The number of bytes before position() that are known to be corrupt.
  uint64_t wrong() const { return wrong_; }

  // Checks the end of the stream after all is decoded. Returns the error; empty if there is none.
  // Throws as Decode does.
  std::string CheckEnd();

  // Returns `what` as an error message with its position.
  std::string Message(std::string_view what) const;

 private:
  const Compressed compressed_;
  std::unique_ptr<Decoder> decoder_;
  uint64_t taken_ = 0;  // Bytes of the stream.
  uint64_t position_ = 0;
  std::optional<AccessPoint> access_point_;
  std::string damage_;
  uint64_t wrong_ = 0;
};

// Decompressors that pause somewhere in their streams until a reader continues there.
//
// Bounds the memory of all decompressors, including those in use, to the capacity, or to that of
// the largest one if that is more. The least recently used ones are evicted; if all are in use, a
// caller waits until another one returns its decompressor. Thread-safe.
class DecompressorPool {
 public:
  // Returns the memory of a decompressor in use.
  struct Return {
    DecompressorPool* decompressors = nullptr;
    void operator()(Decompressor* decompressor) const noexcept;
  };

  // A decompressor in use. Must not outlive its DecompressorPool.
  using Working = std::unique_ptr<Decompressor, Return>;

  explicit DecompressorPool(size_t capacity = size_t{32} << 20) : capacity_(capacity) {}

  // Registers a decompressor, and waits for memory for it. The thread must have no other one.
  // Throws as Cancellation::CheckPreempted does.
  Working Start(std::unique_ptr<Decompressor> decompressor);

  // Returns the cached decompressor of `owner` at `end` or nearest before it, but not before
  // `begin`; null without one.
  Working Take(uint64_t owner, uint64_t begin, uint64_t end);

  // Caches a decompressor at its position, as long as its memory is not needed.
  void Keep(uint64_t owner, Working decompressor);

  // Drops all decompressors of `owner`.
  void Drop(uint64_t owner);

  // Memory of all decompressors, in bytes.
  size_t used() const;

 private:
  struct Cached {
    uint64_t owner = 0;
    Working decompressor;
  };

  const size_t capacity_;
  mutable Mutex mutex_;  // No decoder is made or destroyed under it.
  std::condition_variable changed_;
  size_t used_ GUARDED_BY(mutex_) = 0;  // Bytes.

  // Most recent first. The last member: its destructor uses the others.
  std::list<Cached> cached_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
