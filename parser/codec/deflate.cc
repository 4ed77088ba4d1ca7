#include "parser/codec/deflate.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr size_t kMostAtOnce = std::numeric_limits<uInt>::max();

const Bytef* Raw(const std::byte* bytes) { return reinterpret_cast<const Bytef*>(bytes); }

class DeflateDecoder final : public Decoder {
 public:
  DeflateDecoder() {
    constexpr int kRawWithLargestWindow = -15;
    if (::inflateInit2(&stream_, kRawWithLargestWindow) != Z_OK) LackMemory();
  }
  DeflateDecoder(const DeflateDecoder&) = delete;
  DeflateDecoder& operator=(const DeflateDecoder&) = delete;
  ~DeflateDecoder() override { ::inflateEnd(&stream_); }

  void Enter(unsigned bits, std::byte last_byte, std::span<const std::byte> window) {
    const unsigned value = bits == 0 ? 0 : std::to_integer<unsigned>(last_byte) >> (8 - bits);
    ::inflatePrime(&stream_, static_cast<int>(bits), static_cast<int>(value));
    const auto size = static_cast<uInt>(window.size());
    if (::inflateSetDictionary(&stream_, Raw(window.data()), size) != Z_OK) LackMemory();
  }

  Status Run(std::span<const std::byte>& input, std::span<std::byte>& output) override {
    // zlib does not write to its input, but declares so only with ZLIB_CONST. It needs pointers
    // even to empty buffers.
    Bytef nothing = 0;
    stream_.next_in = input.empty() ? &nothing : const_cast<Bytef*>(Raw(input.data()));
    stream_.avail_in = static_cast<uInt>(std::min(input.size(), kMostAtOnce));
    stream_.next_out = output.empty() ? &nothing : reinterpret_cast<Bytef*>(output.data());
    stream_.avail_out = static_cast<uInt>(std::min(output.size(), kMostAtOnce));
    const uInt input_before = stream_.avail_in;
    const uInt output_before = stream_.avail_out;
    const int result = ::inflate(&stream_, Z_BLOCK);
    input = input.subspan(input_before - stream_.avail_in);
    output = output.subspan(output_before - stream_.avail_out);
    if (result == Z_MEM_ERROR) LackMemory();
    if (result == Z_STREAM_END) return Status::kEnd;
    return result == Z_OK || result == Z_BUF_ERROR ? Status::kMore : Status::kDamaged;
  }

  std::string damage() const override {
    return stream_.msg != nullptr ? stream_.msg : "is not understood";
  }

  size_t memory() const override {
    constexpr size_t kState = 8192;  // Of zlib, with its tables.
    return kState + kDeflateWindow;
  }

  std::optional<unsigned> unused_bits() const override {
    constexpr unsigned kAfterBlock = 128;  // See inflate in zlib.h.
    constexpr unsigned kInLastBlock = 64;
    constexpr unsigned kBits = 7;
    const auto state = static_cast<unsigned>(stream_.data_type);
    if ((state & kAfterBlock) == 0 || (state & kInLastBlock) != 0) return std::nullopt;
    return state & kBits;
  }

 private:
  [[noreturn]] static void LackMemory() { Fail(ENOMEM, "out of memory: cannot start inflate"); }

  z_stream stream_ = {};
};

}  // namespace

std::unique_ptr<Decoder> MakeDeflateDecoder() { return std::make_unique<DeflateDecoder>(); }

std::unique_ptr<Decoder> MakeDeflateDecoder(unsigned bits, std::byte last_byte,
                                            std::span<const std::byte> window) {
  auto decoder = std::make_unique<DeflateDecoder>();
  decoder->Enter(bits, last_byte, window);
  return decoder;
}

}  // namespace ckptfs
