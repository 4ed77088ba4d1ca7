#include "parser/codec/decoder/lzma.h"

#include <fmt/format.h>
#include <lzma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr size_t kHead = 9;        // Bytes before the compressed ones.
constexpr size_t kProperties = 5;  // Of these, the last ones.
static_assert(kHead <= kHeadOfStream);

class LzmaDecoder final : public Decoder {
 public:
  LzmaDecoder(std::span<const std::byte> head, uint64_t size) {
    if (head.size() < kHead) return;  // Run will lack input.
    const auto length = std::to_integer<unsigned>(head[2]) | std::to_integer<unsigned>(head[3])
                                                                 << 8;
    if (length != kProperties) {
      damage_ = fmt::format("its properties have {} bytes, but LZMA has {}", length, kProperties);
      return;
    }
    const auto* const properties =
        reinterpret_cast<const uint8_t*>(head.data()) + kHead - kProperties;
    lzma_filter filter = {.id = LZMA_FILTER_LZMA1EXT, .options = nullptr};
    const lzma_ret result = ::lzma_properties_decode(&filter, nullptr, properties, kProperties);
    const std::unique_ptr<void, decltype(&std::free)> options(filter.options, &std::free);
    if (result == LZMA_MEM_ERROR) LackMemory();
    if (result != LZMA_OK) {
      damage_ = "its properties are none that LZMA has";
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
    if (!damage_.empty()) return Status::kDamaged;
    const size_t skipped = std::min(kHead - head_taken_, input.size());
    head_taken_ += skipped;
    input = input.subspan(skipped);
    if (head_taken_ < kHead) return Status::kMore;
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
    damage_ = "its compressed bytes are damaged";
    return Status::kDamaged;
  }

  std::string damage() const override { return damage_; }

  size_t memory() const override {
    constexpr size_t kState = size_t{64} << 10;  // Of the coder, with its tables.
    return kState + options_.dict_size;
  }

 private:
  [[noreturn]] static void LackMemory() { Fail(ENOMEM, "no memory to decode LZMA with"); }

  // Not before it is used: this is what takes the memory.
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

}  // namespace

std::unique_ptr<Decoder> MakeLzmaDecoder(std::span<const std::byte> head, uint64_t size) {
  return std::make_unique<LzmaDecoder>(head, size);
}

}  // namespace ckptfs
