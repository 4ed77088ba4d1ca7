#include "tools/ckpt/dequantize.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tools/ckpt/elements.h"
#include "tools/ckpt/ggml_blocks.h"

namespace ckptfs::ckpt {
namespace {

// How a tensor is decoded: `decode` writes the elements of `count` blocks.
struct Decoder {
  size_t bytes = 0;     // Of a block.
  size_t elements = 0;  // Of a block.
  std::function<void(const std::byte* blocks, size_t count, float* elements)> decode;
  bool has_shape_in_bytes = false;  // The last dimension of the tensor.
};

float DequantizedNumber(const Quantizer& quantizer, auto integer) {
  const auto number = static_cast<double>(integer) - static_cast<double>(quantizer.zero_point);
  return static_cast<float>(number) * static_cast<float>(quantizer.scale);
}

// Of integers that share bytes: the first is in the lowest bits. Rows do not start on a byte,
// although PyTorch makes room for that.
Decoder DecoderOfPacked(const Quantizer& quantizer, unsigned per_byte) {
  const auto decode = [quantizer, per_byte](const std::byte* bytes, size_t count, float* elements) {
    const unsigned bits = 8 / per_byte;
    for (size_t i = 0; i < count * per_byte; ++i) {
      const auto byte = std::to_integer<unsigned>(bytes[i / per_byte]);
      const unsigned integer = byte >> (i % per_byte * bits) & ((1U << bits) - 1);
      elements[i] = DequantizedNumber(quantizer, integer);
    }
  };
  return {.bytes = 1, .elements = per_byte, .decode = decode};
}

Decoder DecoderOf(const Quantizer& quantizer, Dtype dtype) {
  if (ElementsPerItem(dtype) > 1) return DecoderOfPacked(quantizer, ElementsPerItem(dtype));
  Decoder decoder;
  VisitElementType(dtype, [&](auto type) {
    using Element = decltype(type);
    if constexpr (std::is_integral_v<typename Element::Value>) {
      const auto decode = [quantizer](const std::byte* from, size_t count, float* elements) {
        for (size_t i = 0; i < count; ++i) {
          elements[i] = DequantizedNumber(quantizer, Element::Load(from + i * Element::kSize));
        }
      };
      decoder = {.bytes = Element::kSize, .elements = 1, .decode = decode};
    }
  });
  return decoder;
}

// Returns nothing if the elements are plain numbers, or of an unknown type.
std::optional<Decoder> DecoderOf(const Tensor& tensor) {
  if (tensor.error) return {};
  if (tensor.quantizer) return DecoderOf(*tensor.quantizer, tensor.dtype);
  const bool is_known = tensor.dtype == Dtype::kOpaque && !tensor.is_big_endian;
  const BlockType* const type = tensor.dtype == Dtype::kFloat4E2m1fnX2 ? &kFloat4Pairs
                                : is_known ? BlockTypeNamed(tensor.foreign_dtype)
                                           : nullptr;
  if (type == nullptr || tensor.shape.empty() || tensor.shape.back() % type->bytes != 0) return {};
  return Decoder{.bytes = type->bytes,
                 .elements = type->elements,
                 .decode = type->decode,
                 .has_shape_in_bytes = true};
}

// The elements of blocks, as little-endian float32.
class DecodedSource : public ByteSource {
 public:
  // The length of `blocks` is a multiple of that of a block.
  DecodedSource(Extent blocks, Decoder decoder)
      : blocks_(std::move(blocks)), decoder_(std::move(decoder)) {}

  std::string name() const override { return blocks_.source->name(); }
  uint64_t size() const override { return blocks_.length / decoder_.bytes * BlockSize(); }
  timespec modified() const override { return blocks_.source->modified(); }
  bool is_remote() const override { return blocks_.source->is_remote(); }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    constexpr size_t kMost = size_t{64} << 10U;  // Bytes that are decoded at a time.
    const uint64_t end = offset + buffer.size();
    std::vector<std::byte> bytes;
    std::vector<float> elements;
    while (!buffer.empty()) {
      const uint64_t first = offset / BlockSize();
      const uint64_t last = (end + BlockSize() - 1) / BlockSize();
      const size_t count = std::min<uint64_t>(last - first, kMost / decoder_.bytes);
      bytes.resize(count * decoder_.bytes);
      elements.resize(count * decoder_.elements);
      blocks_.source->ReadAt(blocks_.offset + first * decoder_.bytes, bytes);
      decoder_.decode(bytes.data(), count, elements.data());
      const std::span decoded = std::as_bytes(std::span(elements)).subspan(offset % BlockSize());
      const size_t size = std::min(decoded.size(), buffer.size());
      std::memcpy(buffer.data(), decoded.data(), size);
      buffer = buffer.subspan(size);
      offset += size;
    }
  }

 private:
  // Bytes of the elements of a block.
  uint64_t BlockSize() const { return decoder_.elements * sizeof(float); }

  const Extent blocks_;
  const Decoder decoder_;
};

}  // namespace

Tensor Dequantized(const Tensor& tensor) {
  std::optional<Decoder> decoder = DecoderOf(tensor);
  if (!decoder) return tensor;
  Tensor result{.dtype = Dtype::kFloat32,
                .foreign_dtype = DtypeNameOf(tensor),
                .shape = tensor.shape,
                .data = {},
                .error = {},
                .member = tensor.member,
                .quantizer = {},
                .storage = {},
                .annotations = {},
                .sizes = nullptr};
  if (decoder->has_shape_in_bytes) {
    uint64_t& columns = result.shape.back();
    columns /= decoder->bytes;
    if (__builtin_mul_overflow(columns, decoder->elements, &columns)) return tensor;
  }
  uint64_t size = tensor.data.length / decoder->bytes;
  if (__builtin_mul_overflow(size, decoder->elements * sizeof(float), &size)) return tensor;
  size = std::min<uint64_t>(size, ElementCountOf(result) * sizeof(float));  // Without padding.
  result.data = {std::make_shared<DecodedSource>(tensor.data, std::move(*decoder)), 0, size};
  return result;
}

std::deque<Tensor> Dequantize(std::span<TensorEntry> tensors) {
  std::deque<Tensor> results;
  for (TensorEntry& entry : tensors) {
    if (!DecoderOf(*entry.tensor)) continue;
    entry.tensor = &results.emplace_back(Dequantized(*entry.tensor));
  }
  return results;
}

}  // namespace ckptfs::ckpt
