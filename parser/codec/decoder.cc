#include "parser/codec/decoder.h"

#include <bzlib.h>
#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr size_t kMostPerCall = std::numeric_limits<unsigned>::max();

const Bytef* RawInput(const std::byte* bytes) { return reinterpret_cast<const Bytef*>(bytes); }

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
    if (::inflateSetDictionary(&stream_, RawInput(window.data()), size) != Z_OK) LackMemory();
  }

  Status Run(std::span<const std::byte>& input, std::span<std::byte>& output) override {
    // zlib does not write to its input, but declares so only with ZLIB_CONST. It needs pointers
    // even to empty buffers.
    Bytef nothing = 0;
    stream_.next_in = input.empty() ? &nothing : const_cast<Bytef*>(RawInput(input.data()));
    stream_.avail_in = static_cast<uInt>(std::min(input.size(), kMostPerCall));
    stream_.next_out = output.empty() ? &nothing : reinterpret_cast<Bytef*>(output.data());
    stream_.avail_out = static_cast<uInt>(std::min(output.size(), kMostPerCall));
    const uInt input_before = stream_.avail_in;
    const uInt output_before = stream_.avail_out;
    const int result = ::inflate(&stream_, Z_BLOCK);
    input = input.subspan(input_before - stream_.avail_in);
    output = output.subspan(output_before - stream_.avail_out);
    if (result == Z_MEM_ERROR) LackMemory();
    if (result == Z_STREAM_END) return Status::kEnd;
    return result == Z_OK || result == Z_BUF_ERROR ? Status::kMore : Status::kCorrupt;
  }

  std::string damage() const override {
    return stream_.msg != nullptr ? stream_.msg : "invalid data";
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

namespace {

class Bzip2Decoder final : public Decoder {
 public:
  Bzip2Decoder() {
    if (::BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) LackMemory();
  }
  Bzip2Decoder(const Bzip2Decoder&) = delete;
  Bzip2Decoder& operator=(const Bzip2Decoder&) = delete;
  ~Bzip2Decoder() override { ::BZ2_bzDecompressEnd(&stream_); }

  // A block ends with its checksum, so if that does not match, all output of the block is invalid.
  // A block begins where output ends that needed no further input.
  Status Run(std::span<const std::byte>& input, std::span<std::byte>& output) override {
    const size_t before = output.size();
    std::span<const std::byte> no_input;
    const Status status = Call(no_input, output);
    of_block_ += before - output.size();
    if (status != Status::kMore || output.size() != before) return status;
    std::span<std::byte> no_output;
    const size_t input_before = input.size();
    const Status next = Call(input, no_output);
    if (input.size() != input_before) of_block_ = 0;
    return next;
  }

  std::string damage() const override {
    return result_ == BZ_DATA_ERROR_MAGIC ? "invalid signature" : "corrupt block";
  }

  uint64_t wrong() const override { return of_block_; }

  size_t memory() const override {
    constexpr size_t kLargest = 3'700'000;  // See the manual of bzip2.
    return kLargest;
  }

 private:
  [[noreturn]] static void LackMemory() { Fail(ENOMEM, "out of memory: cannot start bzip2"); }

  Status Call(std::span<const std::byte>& input, std::span<std::byte>& output) {
    // It does not write to its input.
    stream_.next_in = const_cast<char*>(reinterpret_cast<const char*>(input.data()));
    stream_.avail_in = static_cast<unsigned>(std::min(input.size(), kMostPerCall));
    stream_.next_out = reinterpret_cast<char*>(output.data());
    stream_.avail_out = static_cast<unsigned>(std::min(output.size(), kMostPerCall));
    const unsigned input_before = stream_.avail_in;
    const unsigned output_before = stream_.avail_out;
    result_ = ::BZ2_bzDecompress(&stream_);
    input = input.subspan(input_before - stream_.avail_in);
    output = output.subspan(output_before - stream_.avail_out);
    if (result_ == BZ_MEM_ERROR) LackMemory();
    if (result_ == BZ_STREAM_END) return Status::kEnd;
    return result_ == BZ_OK ? Status::kMore : Status::kCorrupt;
  }

  bz_stream stream_ = {};
  int result_ = BZ_OK;
  uint64_t of_block_ = 0;  // Bytes of output of the current block.
};

// The largest supported dictionary. No stream needs a dictionary larger than its output.
constexpr uint64_t kMostOfDictionary = uint64_t{64} << 20;  // Bytes.

// For a stream that begins with `head` and decodes to `size` bytes.
std::unique_ptr<Decoder> MakeLzmaDecoder(std::span<const std::byte> head, uint64_t size);

constexpr size_t kLzmaHead = 9;    // Bytes before the compressed ones.
constexpr size_t kProperties = 5;  // Of these, the last ones.
static_assert(kLzmaHead <= kHeadOfStream);

class LzmaDecoder final : public Decoder {
 public:
  LzmaDecoder(std::span<const std::byte> head, uint64_t size) {
    if (head.size() < kLzmaHead) return;  // Run will lack input.
    const auto length = std::to_integer<unsigned>(head[2]) | std::to_integer<unsigned>(head[3])
                                                                 << 8;
    if (length != kProperties) {
      damage_ = fmt::format("its properties have {} bytes, but LZMA has {}", length, kProperties);
      return;
    }
    const auto* const properties =
        reinterpret_cast<const uint8_t*>(head.data()) + kLzmaHead - kProperties;
    lzma_filter filter = {.id = LZMA_FILTER_LZMA1EXT, .options = nullptr};
    const lzma_ret result = ::lzma_properties_decode(&filter, nullptr, properties, kProperties);
    const std::unique_ptr<void, decltype(&std::free)> options(filter.options, &std::free);
    if (result == LZMA_MEM_ERROR) LackMemory();
    if (result != LZMA_OK) {
      damage_ = "invalid properties";
      return;
    }
    options_ = *static_cast<const lzma_options_lzma*>(options.get());
    options_.dict_size = static_cast<uint32_t>(
        std::min<uint64_t>(options_.dict_size, std::max<uint64_t>(size, LZMA_DICT_SIZE_MIN)));
    if (options_.dict_size > kMostOfDictionary) {
      damage_ = fmt::format("needs a dictionary of {} bytes, but at most {} are used",
                            options_.dict_size, kMostOfDictionary);
    }
    options_.ext_flags = LZMA_LZMA1EXT_ALLOW_EOPM;
    lzma_set_ext_size(options_, size);
    filters_[0] = {.id = LZMA_FILTER_LZMA1EXT, .options = &options_};
  }
  LzmaDecoder(const LzmaDecoder&) = delete;
  LzmaDecoder& operator=(const LzmaDecoder&) = delete;
  ~LzmaDecoder() override { ::lzma_end(&stream_); }

  Status Run(std::span<const std::byte>& input, std::span<std::byte>& output) override {
    if (!damage_.empty()) return Status::kCorrupt;
    const size_t skipped = std::min(kLzmaHead - head_taken_, input.size());
    head_taken_ += skipped;
    input = input.subspan(skipped);
    if (head_taken_ < kLzmaHead) return Status::kMore;
    if (!is_begun_) Begin();
    stream_.next_in = reinterpret_cast<const uint8_t*>(input.data());
    stream_.avail_in = input.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(output.data());
    stream_.avail_out = output.size();
    const lzma_ret result = ::lzma_code(&stream_, LZMA_RUN);
    input = input.last(stream_.avail_in);
    output = output.last(stream_.avail_out);
    if (result == LZMA_MEM_ERROR) LackMemory();
    if (result == LZMA_STREAM_END) return Status::kEnd;
    if (result == LZMA_OK || result == LZMA_BUF_ERROR) return Status::kMore;
    damage_ = "corrupt data";
    return Status::kCorrupt;
  }

  std::string damage() const override { return damage_; }

  size_t memory() const override {
    constexpr size_t kState = size_t{64} << 10;  // Of the coder, with its tables.
    return kState + options_.dict_size;
  }

 private:
  [[noreturn]] static void LackMemory() { Fail(ENOMEM, "out of memory: cannot start LZMA"); }

  // Deferred until the first use, because it allocates the memory.
  void Begin() {
    if (::lzma_raw_decoder(&stream_, filters_.data()) != LZMA_OK) LackMemory();
    is_begun_ = true;
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
  lzma_options_lzma options_ = {};
  std::array<lzma_filter, 2> filters_ = {
      {{.id = LZMA_VLI_UNKNOWN, .options = nullptr}, {.id = LZMA_VLI_UNKNOWN, .options = nullptr}}};
  size_t head_taken_ = 0;
  bool is_begun_ = false;
  std::string damage_;
};

std::unique_ptr<Decoder> MakeLzmaDecoder(std::span<const std::byte> head, uint64_t size) {
  return std::make_unique<LzmaDecoder>(head, size);
}

}  // namespace

std::string_view NameOf(Coding coding) {
  switch (coding) {
    case Coding::kDeflate:
      return "deflate";
    case Coding::kBzip2:
      return "bzip2";
    case Coding::kLzma:
      return "LZMA";
  }
  return "unknown";
}

std::unique_ptr<Decoder> MakeDecoder(Coding coding, std::span<const std::byte> head,
                                     uint64_t size) {
  switch (coding) {
    case Coding::kBzip2:
      return std::make_unique<Bzip2Decoder>();
    case Coding::kLzma:
      return MakeLzmaDecoder(head, size);
    case Coding::kDeflate:
      break;
  }
  return MakeDeflateDecoder();
}

}  // namespace ckptfs
