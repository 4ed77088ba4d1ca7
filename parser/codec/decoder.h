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

// Compression methods, in the form of zip archives.
enum class Coding : uint8_t {
  kDeflate,  // Without a header.
  kBzip2,
  kLzma,  // LZMA1, after its properties.
};

// Returns the name for messages: "deflate".
std::string_view NameOf(Coding coding);

// Decodes one stream from its beginning, or a deflated one from an access point. Belongs to one
// thread at a time.
class Decoder {
 public:
  enum class Status : uint8_t {
    kMore,     // Needs more input or more room for output.
    kEnd,      // The stream has ended.
    kCorrupt,  // It is corrupt.
  };

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  // Decodes from the front of `input` to the front of `output`, and removes the consumed and the
  // written bytes. If it does neither and the status is kMore, one of them is empty. May stop
  // anywhere. Throws Error(ENOMEM).
  virtual Status Run(std::span<const std::byte>& input, std::span<std::byte>& output) = 0;

  // The error after kCorrupt.
  virtual std::string damage() const = 0;

  // The number of the last bytes of output that are invalid after kCorrupt.
  virtual uint64_t wrong() const { return 0; }

  // The maximum memory, in bytes.
  virtual size_t memory() const = 0;

  // At a possible access point: the number of bits of the last consumed byte, at most 7, that
  // belong to the next block. Else nothing.
  virtual std::optional<unsigned> unused_bits() const { return std::nullopt; }
};

// The bytes of a stream that MakeDecoder needs.
constexpr size_t kHeadOfStream = 9;

// Returns a decoder for a stream that decodes to `size` bytes. `head` is its first kHeadOfStream
// bytes, or all of a shorter one; they are also passed to Run. Throws Error(ENOMEM).
std::unique_ptr<Decoder> MakeDecoder(Coding coding, std::span<const std::byte> head, uint64_t size);

// A deflated stream is a sequence of blocks. To resume at the beginning of a block, a decoder needs
// only the position of its first bit and the 32 KiB of output before it, to which the block may
// refer.
constexpr size_t kDeflateWindow = size_t{32} << 10;  // Bytes.

// Returns a decoder for a stream without a header. Its Run stops at the end of each block.
std::unique_ptr<Decoder> MakeDeflateDecoder();

// Returns a decoder that resumes at the access point of another one, whose unused_bits was `bits`,
// whose last byte of input was `last_byte`, and whose last kDeflateWindow bytes of output were
// `window`.
std::unique_ptr<Decoder> MakeDeflateDecoder(unsigned bits, std::byte last_byte,
                                            std::span<const std::byte> window);

}  // namespace ckptfs
