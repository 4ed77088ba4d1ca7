// Writes valid and invalid files of gguf.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "parser/io/byte_source.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {

// Collects metadata and entries; each call appends, whether or not the result is valid.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3, bool is_big_endian = false)
      : version_(version), is_big_endian_(is_big_endian) {}

  // A number in the format of the file.
  template <typename T>
  std::string Number(T number) const {
    auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(number);
    if (is_big_endian_) std::ranges::reverse(bytes);
    return {bytes.data(), bytes.size()};
  }

  // A count, a length or a dimension.
  std::string Count(uint64_t count) const {
    return version_ == 1 ? Number(static_cast<uint32_t>(count)) : Number(count);
  }

  std::string Text(std::string_view text) const { return Count(text.size()).append(text); }

  // The type and the count, which precede the elements of an array.
  std::string Array(uint32_t type, uint64_t count) const { return Number(type) + Count(count); }

  // A pair; `value` is as in the file.
  GgufWriter& Pair(std::string_view key, uint32_t type, std::string_view value) {
    metadata_ += Text(key) + Number(type) + std::string(value);
    ++pairs_;
    return *this;
  }

  GgufWriter& Pair(std::string_view key, std::string_view text) { return Pair(key, 8, Text(text)); }

  GgufWriter& Alignment(uint32_t alignment) {
    alignment_ = alignment;
    return Pair("general.alignment", 4, Number(alignment));
  }

  // The metadata of a part of a split model.
  GgufWriter& Split(uint16_t number, uint16_t count, int32_t tensors) {
    Pair("split.no", 2, Number(number)).Pair("split.count", 2, Number(count));
    return Pair("split.tensors.count", 5, Number(tensors));
  }

  // A tensor; `dims` are in the order of the file.
  GgufWriter& Tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                     uint64_t offset) {
    entries_ += Text(name) + Number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t size : dims) entries_ += Count(size);
    entries_ += Number(type) + Number(offset);
    ++tensors_;
    return *this;
  }

  // The header without its padding. The counts may be wrong.
  std::string Header(uint64_t tensors, uint64_t pairs) const {
    return "GGUF" + Number(version_) + Count(tensors) + Count(pairs) + metadata_ + entries_;
  }
  std::string Header() const { return Header(tensors_, pairs_); }

  // The file with that data.
  std::string File(std::string_view data) const {
    std::string file = Header();
    if (tensors_ > 0) file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_);
    return file.append(data);
  }

  ByteSourcePtr Source(std::string_view data) const {
    return std::make_shared<MemorySource>(File(data));
  }

 private:
  uint32_t version_;
  bool is_big_endian_;
  uint32_t alignment_ = 32;
  uint64_t pairs_ = 0;
  uint64_t tensors_ = 0;
  std::string metadata_;
  std::string entries_;
};

}  // namespace ckptfs
