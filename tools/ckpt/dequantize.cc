#include "tools/ckpt/dequantize.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/ckpt/ggml_blocks.h"

namespace ckptfs::ckpt {
namespace {

const BlockType* BlockTypeOf(const Tensor& tensor) {
  if (tensor.dtype == Dtype::kFloat4E2m1fnX2) return &kFloat4Pairs;
  const bool is_known = tensor.dtype == Dtype::kOpaque && !tensor.is_big_endian;
  return is_known ? BlockTypeNamed(tensor.foreign_dtype) : nullptr;
}

// The elements of blocks, as little-endian float32.
class BlockElements : public ByteSource {
 public:
  // The length of `blocks` is a multiple of that of a block.
  BlockElements(Extent blocks, const BlockType& type) : blocks_(std::move(blocks)), type_(type) {}

  std::string name() const override { return blocks_.source->name(); }
  uint64_t size() const override { return blocks_.length / type_.bytes * BlockSize(); }
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
      const size_t count = std::min<uint64_t>(last - first, kMost / type_.bytes);
      bytes.resize(count * type_.bytes);
      elements.resize(count * type_.elements);
      blocks_.source->ReadAt(blocks_.offset + first * type_.bytes, bytes);
      type_.decode(bytes.data(), count, elements.data());
      const std::span decoded = std::as_bytes(std::span(elements)).subspan(offset % BlockSize());
      const size_t size = std::min(decoded.size(), buffer.size());
      std::memcpy(buffer.data(), decoded.data(), size);
      buffer = buffer.subspan(size);
      offset += size;
    }
  }

 private:
  // Bytes of the elements of a block.
  uint64_t BlockSize() const { return type_.elements * sizeof(float); }

  const Extent blocks_;
  const BlockType& type_;
};

}  // namespace

Tensor Dequantized(const Tensor& tensor) {
  const BlockType* const type = BlockTypeOf(tensor);
  if (type == nullptr || tensor.error || tensor.shape.empty()) return tensor;
  if (tensor.shape.back() % type->bytes != 0) return tensor;
  Tensor result{.dtype = Dtype::kFloat32,
                .foreign_dtype = std::string(type->name),
                .shape = tensor.shape,
                .data = {},
                .error = {},
                .member = tensor.member,
                .storage = {},
                .annotations = {},
                .sizes = nullptr};
  uint64_t& columns = result.shape.back();
  columns /= type->bytes;
  if (__builtin_mul_overflow(columns, type->elements, &columns)) return tensor;
  const uint64_t blocks = tensor.data.length / type->bytes;
  uint64_t size = 0;
  if (__builtin_mul_overflow(blocks, type->elements * sizeof(float), &size)) return tensor;
  result.data = {std::make_shared<BlockElements>(tensor.data, *type), 0, size};
  return result;
}

std::deque<Tensor> Dequantize(std::span<TensorEntry> tensors) {
  std::deque<Tensor> results;
  for (TensorEntry& entry : tensors) {
    if (BlockTypeOf(*entry.tensor) == nullptr) continue;
    entry.tensor = &results.emplace_back(Dequantized(*entry.tensor));
  }
  return results;
}

}  // namespace ckptfs::ckpt
