// Byte sources: immutable sequences of bytes that can be read at any offset.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ckptfs {

// The state of the verification of bytes that have a hash.
enum class Verdict : uint8_t {
  kNone,    // There is no hash, or it is not checked.
  kUnread,  // Not all of them have been read yet.
  kRight,
  kWrong,
};

// How hashes are verified. Shared by all sources that are checked.
struct Verification {
  // Reads fail with EIO after a checksum mismatch; else the mismatch is only reported.
  bool is_enforced = false;

  // Called once for each run of bytes after all of it has been read, from any thread. `what` names
  // it: "model.tensors: tensor 'fc.weight'"; `found` is the result: "its CRC32 and SHA-256 are
  // right".
  std::function<void(std::string_view what, Verdict verdict, std::string_view found)> report;
};

// Bytes of a source.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t length = 0;

  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// A fixed-length sequence of bytes that can be read at any offset: a local file, an object in S3,
// the decompressed contents of a zip member, the elements of a transposed tensor. Sources stack: a
// cache or a decoder is a source that reads from another one.
//
// A source never changes once it is open. All methods may be called by several threads at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // The name for messages: "s3://bucket/model.pth". Never contains a secret.
  virtual std::string name() const = 0;

  // Length in bytes.
  virtual uint64_t size() const = 0;

  // Fills `buffer` with the bytes starting at `offset`.
  // The range must lie within the source: there are no short reads.
  // Throws Error: EIO or EREMOTEIO if the bytes are not available, ESTALE if they have changed.
  virtual void ReadAt(uint64_t offset, std::span<std::byte> buffer) const = 0;

  // Fills `buffer` with consecutive pieces of `length` bytes; piece i starts at `offset` + i *
  // `stride`. The size of `buffer` is a multiple of `length`, which is not 0. Each piece must lie
  // within the source. Throws as ReadAt does.
  virtual void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                            std::span<std::byte> buffer) const {
    for (; !buffer.empty(); offset += stride, buffer = buffer.subspan(length)) {
      ReadAt(offset, buffer.first(length));
    }
  }

  // The time of the last change; the epoch if unknown.
  virtual timespec modified() const { return {}; }

  // The state of the verification of all of these bytes by the hashes in the checkpoint.
  virtual Verdict verdict() const { return Verdict::kNone; }

  // Whether the bytes are zeros that are not stored.
  virtual bool is_hole() const { return false; }

  // Whether reads take no longer than those of a local file: they do not decode, decrypt, gather,
  // hash or fetch.
  virtual bool is_immediate() const { return false; }

  // Reads as ReadAt does if that takes no longer than a read of a local file, as from a cache with
  // the bytes. Returns whether it did; if not, `buffer` may have changed.
  virtual bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const {
    if (!is_immediate()) return false;
    ReadAt(offset, buffer);
    return true;
  }

  // Whether a read may cost a round trip over a network, however few bytes it is for.
  virtual bool is_remote() const { return false; }

  // Whether a round trip takes so long that it is worth some bytes that are fetched in vain.
  virtual bool is_distant() const { return false; }

  // Advises that `range`, which lies within the source, is one file of the mount: a sequential
  // reader of its beginning is likely to read it to its end. Call it once for each file, before the
  // mount. Does nothing if the kernel does the read-ahead.
  virtual void AdviseFile(ByteRange /*range*/) const {}

  // Advises that all of `ranges`, which lie within the source, will be read soon, so that they can
  // be fetched concurrently. Returns immediately; errors are reported when the ranges are read.
  virtual void Prefetch(std::span<const ByteRange> /*ranges*/) const {}
};

// Sources are immutable, so they are shared freely.
using ByteSourcePtr = std::shared_ptr<const ByteSource>;

// A source on top of another one. It forwards hints and verdicts; a subclass overrides what
// differs. Only is_immediate and TryReadAt are not forwarded: reads of a subclass, which may
// decode, are not immediate by default.
class ForwardingSource : public ByteSource {
 public:
  std::string name() const override { return source_->name(); }
  uint64_t size() const override { return source_->size(); }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    source_->ReadAt(offset, buffer);
  }
  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    source_->ReadPiecesAt(offset, stride, length, buffer);
  }
  timespec modified() const override { return source_->modified(); }
  Verdict verdict() const override { return source_->verdict(); }
  bool is_hole() const override { return source_->is_hole(); }
  bool is_remote() const override { return source_->is_remote(); }
  bool is_distant() const override { return source_->is_distant(); }
  void AdviseFile(ByteRange range) const override { source_->AdviseFile(range); }
  void Prefetch(std::span<const ByteRange> ranges) const override { source_->Prefetch(ranges); }

 protected:
  // `source` is not null.
  explicit ForwardingSource(ByteSourcePtr source) : source_(std::move(source)) {}

  const ByteSource& source() const { return *source_; }

 private:
  const ByteSourcePtr source_;
};

// A contiguous run of bytes in a source.
struct Extent {
  ByteSourcePtr source;
  uint64_t offset = 0;  // In bytes.
  uint64_t length = 0;  // In bytes.
};

// A source whose stored size may be smaller than its size: a sparse file, a decompressor.
class PartlyStored {
 public:
  virtual ~PartlyStored() = default;

  // In bytes, of the whole source.
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
