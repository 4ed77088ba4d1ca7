#include "parser/codec/decoder/bzip2.h"

#include <bzlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr size_t kMostAtOnce = std::numeric_limits<unsigned>::max();

class Bzip2Decoder final : public Decoder {
 public:
  Bzip2Decoder() {
    if (::BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) LackMemory();
  }
  Bzip2Decoder(const Bzip2Decoder&) = delete;
  Bzip2Decoder& operator=(const Bzip2Decoder&) = delete;
  ~Bzip2Decoder() override { ::BZ2_bzDecompressEnd(&stream_); }

  // A block ends in its hash, so what was made of it is wrong if that is. That there are as many
  // bytes of it as were made without taking any input tells where it began.
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
    return result_ == BZ_DATA_ERROR_MAGIC ? "does not begin as one" : "a block is damaged";
  }

  uint64_t wrong() const override { return of_block_; }

  size_t memory() const override {
    constexpr size_t kLargest = 3'700'000;  // See the manual of bzip2.
    return kLargest;
  }

 private:
  [[noreturn]] static void LackMemory() { Fail(ENOMEM, "no memory to decode bzip2 with"); }

  Status Call(std::span<const std::byte>& input, std::span<std::byte>& output) {
    // It does not write to its input.
    stream_.next_in = const_cast<char*>(reinterpret_cast<const char*>(input.data()));
    stream_.avail_in = static_cast<unsigned>(std::min(input.size(), kMostAtOnce));
    stream_.next_out = reinterpret_cast<char*>(output.data());
    stream_.avail_out = static_cast<unsigned>(std::min(output.size(), kMostAtOnce));
    const unsigned input_before = stream_.avail_in;
    const unsigned output_before = stream_.avail_out;
    result_ = ::BZ2_bzDecompress(&stream_);
    input = input.subspan(input_before - stream_.avail_in);
    output = output.subspan(output_before - stream_.avail_out);
    if (result_ == BZ_MEM_ERROR) LackMemory();
    if (result_ == BZ_STREAM_END) return Status::kEnd;
    return result_ == BZ_OK ? Status::kMore : Status::kDamaged;
  }

  bz_stream stream_ = {};
  int result_ = BZ_OK;
  uint64_t of_block_ = 0;  // Bytes that were made of the block at hand.
};

}  // namespace

std::unique_ptr<Decoder> MakeBzip2Decoder() { return std::make_unique<Bzip2Decoder>(); }

}  // namespace ckptfs
