// The format of ggml and llama.cpp (https://github.com/ggml-org/ggml, docs/gguf.md): a header with
// metadata of any size, followed by the tensors; see gguf/header.h.
//
// Most tensors are quantised in blocks, for which neither NumPy nor PyTorch has a type. They are
// shown as rows of uint8, like in the gguf package for Python, with annotations for type and shape.
//
// ckptfs also reads files that ggml rejects: version 1, the other byte order, gaps and other orders
// of the data, more than four dimensions, long names, and types that ggml has removed or that are
// newer than this program; a tensor of an unknown type extends to the next tensor.

#include "parser/format/gguf/file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/gguf/header.h"
#include "parser/layer/strided.h"

namespace ckptfs::gguf {
namespace {

std::string ListOf(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Elements of a plain type.
void SetPlain(const StoredType& type, bool is_big_endian, Tensor& tensor) {
  tensor.dtype = type.dtype;
  if (!is_big_endian || type.bytes == 1 || tensor.data.length == 0) return;
  // The elements are contiguous, whatever the number of dimensions.
  const View view{.dtype = type.dtype,
                  .shape = {tensor.data.length / type.bytes},
                  .stride = {1},
                  .is_big_endian = true};
  tensor.data = {MakeStrided(tensor.data, view), 0, tensor.data.length};
  tensor.is_in_file = false;
}

// Shows rows of blocks as they are in the file.
void SetBlocks(const StoredType& type, bool is_big_endian, Tensor& tensor) {
  std::vector<Annotation>& annotations = tensor.annotations;
  annotations.emplace_back("logical_shape", ListOf(tensor.shape));
  annotations.emplace_back("block_elements", std::to_string(type.elements));
  annotations.emplace_back("block_bytes", std::to_string(type.bytes));
  if (is_big_endian) annotations.emplace_back("byte_order", "\"big\"");
  tensor.foreign_dtype = type.name;
  tensor.is_big_endian = is_big_endian;
  tensor.shape.back() = tensor.shape.back() / type.elements * type.bytes;
}

void SetUnknown(uint32_t type, bool is_big_endian, Tensor& tensor) {
  tensor.annotations.emplace_back("logical_shape", ListOf(tensor.shape));
  tensor.annotations.emplace_back("unknown_type", "true");
  if (is_big_endian) tensor.annotations.emplace_back("byte_order", "\"big\"");
  tensor.foreign_dtype = fmt::format("ggml type {}", type);
  tensor.shape = {tensor.data.length};
}

Tensor TensorOf(const TensorInfo& entry, const DataRange& place, bool is_big_endian,
                const ByteSourcePtr& file) {
  // The offset of a tensor without elements may be anything.
  const uint64_t offset = place.length == 0 ? 0 : place.offset;
  Tensor tensor{.dtype = Dtype::kOpaque,
                .foreign_dtype = "",
                .shape = entry.shape,
                .data = {file, offset, place.length},
                .member = "",
                .file_offset = place.offset,
                .is_in_file = true,
                .annotations = {}};
  const StoredType* type = StoredTypeOf(entry.type);
  std::vector<uint64_t> dims(entry.shape.rbegin(), entry.shape.rend());
  const bool is_plain = type != nullptr && type->elements == 1;
  tensor.annotations.reserve(is_plain ? 2 : 6);  // There may be very many.
  tensor.annotations.emplace_back(
      "ggml_type", type == nullptr ? std::to_string(entry.type) : json::String(type->name));
  tensor.annotations.emplace_back("dims", ListOf(dims));
  if (type == nullptr) {
    SetUnknown(entry.type, is_big_endian, tensor);
  } else if (is_plain) {
    SetPlain(*type, is_big_endian, tensor);
  } else {
    SetBlocks(*type, is_big_endian, tensor);
  }
  return tensor;
}

uint64_t CostOf(const Tensor& tensor) {
  uint64_t cost = tensor.foreign_dtype.size();
  for (const Annotation& note : tensor.annotations) cost += sizeof note + 2 * note.second.size();
  return cost;
}

}  // namespace

void AddTensors(const ByteSourcePtr& file, const GgufHeader& header, uint64_t alignment,
                Budget& budget, Checkpoint& checkpoint) {
  const std::vector<DataRange> places = LocateTensors(header, alignment, file->size(), budget);
  std::optional<Error> damage;
  size_t good = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const TensorInfo& entry = header.entries[i];
    const DataRange& place = places[i];
    if (!place.error) {
      Tensor tensor = TensorOf(entry, place, header.is_big_endian, file);
      budget.Charge(CostOf(tensor));
      checkpoint.root.members.push_back({{entry.name}, std::move(tensor)});
      ++good;
      continue;
    }
    const Error& error = *place.error;
    if (!damage) damage = WithContext("tensor " + Quoted(entry.name), error);
    WarnOfUnreadable(entry.name, error, budget, checkpoint);
    checkpoint.root.members.push_back({{entry.name}, MakePlaceholder({}, error)});
  }
  if (damage && good == 0) throw Error(*damage);
}

void AddAnnotations(GgufHeader header, uint64_t alignment, std::vector<Annotation>& annotations) {
  annotations.emplace_back("gguf_version", std::to_string(header.version));
  annotations.emplace_back("byte_order", header.is_big_endian ? "\"big\"" : "\"little\"");
  annotations.emplace_back("alignment", std::to_string(alignment));
  annotations.emplace_back("metadata", std::move(header.metadata.values));
  annotations.emplace_back("metadata_types", std::move(header.metadata.types));
}

void CheckAlignment(const GgufHeader& header, uint64_t file_size) {
  const Metadata& metadata = header.metadata;
  if (metadata.alignment || metadata.split.number.value_or(0) == 0) return;
  const auto end = EndOf(header, kUsualAlignment);
  if (!end || *end >= file_size) return;
  Fail(EBADMSG,
       "its tensors end at byte {} if they are aligned to {} bytes, but the file has {}: the first "
       "part of the model, which cannot be read, may specify another alignment",
       *end, kUsualAlignment, file_size);
}

Checkpoint ReadAlone(const ByteSourcePtr& file, GgufHeader header, Budget& budget) {
  const uint64_t alignment = header.metadata.alignment.value_or(kUsualAlignment);
  Checkpoint checkpoint;
  if (const Split& split = header.metadata.split; split.is_part()) {
    checkpoint.warnings.push_back(
        fmt::format("is part {} of {} of a model, and the others are not found by its name",
                    split.number.value_or(0) + 1, *split.count));
    CheckAlignment(header, file->size());
  }
  AddTensors(file, header, alignment, budget, checkpoint);
  AddAnnotations(std::move(header), alignment, checkpoint.annotations);
  return checkpoint;
}

namespace {

constexpr StoredType Plain(uint32_t number, std::string_view name, unsigned bytes, Dtype dtype) {
  return {name, number, 1, bytes, dtype};
}

constexpr StoredType Blocks(uint32_t number, std::string_view name, unsigned elements,
                            unsigned bytes) {
  return {name, number, elements, bytes, Dtype::kOpaque};
}

// By number.
constexpr StoredType kRows[] = {
    Plain(0, "F32", 4, Dtype::kFloat32),
    Plain(1, "F16", 2, Dtype::kFloat16),
    Blocks(2, "Q4_0", 32, 18),
    Blocks(3, "Q4_1", 32, 20),
    Blocks(6, "Q5_0", 32, 22),
    Blocks(7, "Q5_1", 32, 24),
    Blocks(8, "Q8_0", 32, 34),
    Blocks(9, "Q8_1", 32, 36),
    Blocks(10, "Q2_K", 256, 84),
    Blocks(11, "Q3_K", 256, 110),
    Blocks(12, "Q4_K", 256, 144),
    Blocks(13, "Q5_K", 256, 176),
    Blocks(14, "Q6_K", 256, 210),
    Blocks(15, "Q8_K", 256, 292),
    Blocks(16, "IQ2_XXS", 256, 66),
    Blocks(17, "IQ2_XS", 256, 74),
    Blocks(18, "IQ3_XXS", 256, 98),
    Blocks(19, "IQ1_S", 256, 50),
    Blocks(20, "IQ4_NL", 32, 18),
    Blocks(21, "IQ3_S", 256, 110),
    Blocks(22, "IQ2_S", 256, 82),
    Blocks(23, "IQ4_XS", 256, 136),
    Plain(24, "I8", 1, Dtype::kInt8),
    Plain(25, "I16", 2, Dtype::kInt16),
    Plain(26, "I32", 4, Dtype::kInt32),
    Plain(27, "I64", 8, Dtype::kInt64),
    Plain(28, "F64", 8, Dtype::kFloat64),
    Blocks(29, "IQ1_M", 256, 56),
    Plain(30, "BF16", 2, Dtype::kBfloat16),
    Blocks(34, "TQ1_0", 256, 54),
    Blocks(35, "TQ2_0", 256, 66),
    Blocks(39, "MXFP4", 32, 17),
    Blocks(40, "NVFP4", 64, 36),
    Blocks(41, "Q1_0", 128, 18),
    Blocks(42, "Q2_0", 64, 18),
};

}  // namespace

const StoredType* StoredTypeOf(uint32_t number) {
  const auto* row = std::ranges::find(kRows, number, &StoredType::number);
  return row == std::end(kRows) ? nullptr : row;
}

namespace {

bool Matches(const Probe& probe) {
  return probe.head.size() >= kMagic.size() &&
         std::ranges::equal(probe.head.first(kMagic.size()), std::as_bytes(std::span(kMagic)));
}

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  Budget& budget = *options.budget;
  return ReadAlone(source.file, ReadHeader(*source.file, budget), budget);
}

}  // namespace
}  // namespace ckptfs::gguf

namespace ckptfs {

extern const Format gguf_format{
    .name = "gguf", .matches = gguf::Matches, .parse = gguf::Parse, .is_certain = gguf::Matches};

}  // namespace ckptfs
