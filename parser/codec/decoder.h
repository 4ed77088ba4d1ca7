// Compressed streams of bytes, decoded piece by piece.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ckptfs {

// How a stream is compressed, each as zip archives have it.
enum class Coding : uint8_t {
  kDeflate,  // Without a header.
  kBzip2,
  kLzma,  // LZMA of the first generation, behind its properties.
};

// Returns what messages call a coding: "deflate".
std::string_view NameOf(Coding coding);

// Decodes one stream from its beginning, or from where one that is deflated can be entered.
// Belongs to one thread at a time.
class Decoder {
 public:
  enum class Status : uint8_t {
    kMore,     // There is more to come, if there is input, and room for output.
    kEnd,      // The stream has come to its end.
    kCorrupt,  // It is corrupt.
  };

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  // Decodes from the front of `input` to the front of `output` and shortens both by what it took
  // and made. If it does neither and the status is kMore, it lacks one of them. May stop at any
  // place. Throws Error(ENOMEM).
  virtual Status Run(std::span<const std::byte>& input, std::span<std::byte>& output) = 0;

  // The error after kCorrupt.
  virtual std::string damage() const = 0;

  // How many of the last bytes of output are known to be corrupt after kCorrupt.
  virtual uint64_t wrong() const { return 0; }

  // Memory that it may need, in bytes.
  virtual size_t memory() const = 0;

  // If the stream can be entered here: how many bits of the last byte that was taken, at most 7,
  // belong to what follows.
  virtual std::optional<unsigned> unused_bits() const { return std::nullopt; }
};

// How much of a stream MakeDecoder needs to see, in bytes.
constexpr size_t kHeadOfStream = 9;

// Returns a decoder for a stream that decodes to `size` bytes. `head` is its beginning, as much as
// there is of kHeadOfStream bytes; it is given to Run as well. Throws Error(ENOMEM).
std::unique_ptr<Decoder> MakeDecoder(Coding coding, std::span<const std::byte> head, uint64_t size);

// A deflated stream is a row of blocks. To decode on from the beginning of a block, a decoder needs
// no more than the place of its first bit and the 32 KiB of output before it, to which the block
// may refer.
constexpr size_t kDeflateWindow = size_t{32} << 10;  // Bytes.

// Returns a decoder for a stream without a header. Its Run stops at the end of each block.
std::unique_ptr<Decoder> MakeDeflateDecoder();

// Returns a decoder that continues where another one stood when its unused_bits was `bits`, the
// last byte of its input was `last_byte`, and the last kDeflateWindow bytes of its output were
// `window`.
std::unique_ptr<Decoder> MakeDeflateDecoder(unsigned bits, std::byte last_byte,
                                            std::span<const std::byte> window);

}  // namespace ckptfs
