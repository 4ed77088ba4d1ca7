// A decoder on its way through a compressed run of bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "parser/codec/decoder.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// Where a deflated stream can be entered.
struct AccessPoint {
  uint64_t position = 0;  // How many bytes are decoded before it.
  uint64_t bit = 0;       // How many bits of the stream are before it.
};

// A compressed run of bytes, and how many it should decode to.
struct Compressed {
  Coding coding = Coding::kDeflate;
  Extent data;
  uint64_t size = 0;
};

// Belongs to one thread at a time.
class Decompressor {
 public:
  // Stands at the beginning. Reads the head of the stream; throws as reading `compressed.data` does.
  explicit Decompressor(const Compressed& compressed);

  // Stands at an access_point, before which there are the bytes `window`, kDeflateWindow of them.
  Decompressor(const Compressed& compressed, const AccessPoint& access_point,
               std::span<const std::byte> window);

  // How many bytes have been decoded before this one stood here.
  uint64_t position() const { return position_; }

  // Memory that it may need, in bytes.
  size_t memory() const { return decoder_->memory(); }

  // Decodes what comes next. Returns how many bytes there were: all that `output` has room for,
  // unless the stream has ended or is damaged. Throws Error as reading the source does, ENOMEM, and
  // after a while EINTR (cancellation.h); then it is of no use any more.
  size_t Decode(std::span<std::byte> output);

  // Decodes `length` bytes for nothing. Returns whether there were as many.
  bool Skip(uint64_t length);

  // The last place in what Decode has made at last where the stream can be entered, of which it has
  // made the window, too.
  const std::optional<AccessPoint>& access_point() const { return access_point_; }

  // Why Decode had fewer bytes than it should: where, and what is wrong; empty if the stream has
  // come to its end.
  const std::string& damage() const { return damage_; }

  // How many of the bytes before position() are known to be wrong if it is damaged.
  uint64_t wrong() const { return wrong_; }

  // To be called when all is decoded: what is wrong with the end of the stream; empty if it is as
  // it should be. Throws as Decode does.
  std::string CheckEnd();

  // Returns what is wrong as a message tells it, with the place.
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

}  // namespace ckptfs
