#include "parser/format/gguf/file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/damaged.h"
#include "parser/format/gguf/layout.h"
#include "parser/format/gguf/types.h"
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
  // Where there is more than one dimension, the elements lie one behind the other all the same.
  const View view{.dtype = type.dtype,
                  .shape = {tensor.data.length / type.bytes},
                  .stride = {1},
                  .is_big_endian = true};
  tensor.data = {MakeStrided(tensor.data, view), 0, tensor.data.length};
  tensor.is_in_file = false;
}

// Rows of blocks, as they are in the file.
void SetBlocks(const StoredType& type, bool is_big_endian, Tensor& tensor) {
  std::vector<Annotation>& annotations = tensor.annotations;
  annotations.emplace_back("logical_shape", ListOf(tensor.shape));
  annotations.emplace_back("block_elements", std::to_string(type.elements));
  annotations.emplace_back("block_bytes", std::to_string(type.bytes));
  if (is_big_endian) annotations.emplace_back("byte_order", "\"big\"");
  tensor.foreign_dtype = type.name;
  tensor.shape.back() = tensor.shape.back() / type.elements * type.bytes;
}

void SetUnknown(uint32_t type, bool is_big_endian, Tensor& tensor) {
  tensor.annotations.emplace_back("logical_shape", ListOf(tensor.shape));
  tensor.annotations.emplace_back("unknown_type", "true");
  if (is_big_endian) tensor.annotations.emplace_back("byte_order", "\"big\"");
  tensor.foreign_dtype = fmt::format("ggml type {}", type);
  tensor.shape = {tensor.data.length};
}

Tensor TensorOf(const Entry& entry, const Place& place, bool is_big_endian,
                const ByteSourcePtr& file) {
  // A tensor without elements may be said to lie anywhere.
  const uint64_t offset = place.length == 0 ? 0 : place.offset;
  Tensor tensor{.dtype = Dtype::kOpaque,
                .foreign_dtype = "",
                .shape = entry.shape,
                .data = {file, offset, place.length},
                .error = "",
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

void AddTensors(const ByteSourcePtr& file, const Header& header, uint64_t alignment, Budget& budget,
                Checkpoint& checkpoint) {
  const std::vector<Place> places = PlacesOf(header, alignment, file->size(), budget);
  std::optional<Error> damage;
  size_t good = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const Entry& entry = header.entries[i];
    const Place& place = places[i];
    if (place.error.empty()) {
      Tensor tensor = TensorOf(entry, place, header.is_big_endian, file);
      budget.Charge(CostOf(tensor));
      checkpoint.root.members.push_back({{entry.name}, std::move(tensor)});
      ++good;
      continue;
    }
    const Error error(EBADMSG, place.error);
    if (!damage) damage = WithContext("tensor " + Quoted(entry.name), error);
    WarnOfDamage(entry.name, error, budget, checkpoint);
    checkpoint.root.members.push_back({{entry.name}, Damaged({}, error)});
  }
  if (damage && good == 0) throw Error(*damage);
}

void AddAnnotations(Header header, uint64_t alignment, std::vector<Annotation>& annotations) {
  annotations.emplace_back("gguf_version", std::to_string(header.version));
  annotations.emplace_back("byte_order", header.is_big_endian ? "\"big\"" : "\"little\"");
  annotations.emplace_back("alignment", std::to_string(alignment));
  annotations.emplace_back("metadata", std::move(header.metadata.values));
  annotations.emplace_back("metadata_types", std::move(header.metadata.types));
}

void CheckAlignment(const Header& header, uint64_t file_size) {
  const Metadata& metadata = header.metadata;
  if (metadata.alignment || metadata.split.number.value_or(0) == 0) return;
  const auto end = EndOf(header, kUsualAlignment);
  if (!end || *end >= file_size) return;
  Fail(EBADMSG,
       "its tensors end at byte {} if they are aligned to {} bytes, but the file has {}: another "
       "alignment may be told in the first part of the model, which cannot be read",
       *end, kUsualAlignment, file_size);
}

Checkpoint ReadAlone(const ByteSourcePtr& file, Header header, Budget& budget) {
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

}  // namespace ckptfs::gguf
