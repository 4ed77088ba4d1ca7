#include "parser/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"

namespace ckptfs {
namespace {

void ValidateExtent(const Extent& data) {
  const uint64_t size = data.source->size();
  if (data.offset > size || data.length > size - data.offset) {
    Fail(EBADMSG, "data out of range: {} bytes at byte {} ({} has {} bytes)", data.length,
         data.offset, data.source->name(), size);
  }
}

void ValidateTensor(const Tensor& tensor) {
  if (tensor.shape.size() > kMaxDimensions) {
    Fail(EBADMSG, "too many dimensions (found {}, maximum {})", tensor.shape.size(),
         kMaxDimensions);
  }
  const Extent& data = tensor.data;
  if (const uint64_t want = ByteSize(tensor.dtype, tensor.shape); data.length != want) {
    Fail(EBADMSG, "size mismatch (found {} bytes, dtype and shape need {})", data.length, want);
  }
  if (tensor.sizes != nullptr) {
    const Tensor& sizes = *tensor.sizes;
    if (sizes.shape.size() != 2 || sizes.dtype != Dtype::kInt64) {
      Fail(EBADMSG, "nested shapes: not a matrix of int64");
    }
    ValidateTensor(sizes);
  }
  if (!tensor.error) ValidateExtent(data);
}

void ValidateTable(const Table& table) {
  if (!table.error) ValidateExtent(table.data);
}

// Calls `validate` and adds the name of the member to its Error.
template <typename T>
void ValidateMember(std::string_view what, const Key& key, const T& content,
                    void (*validate)(const T&)) {
  try {
    validate(content);
  } catch (const Error& e) {
    throw WithContext(fmt::format("{} {}", what, Quoted(key.text)), e);
  }
}

// The depth of the recursion is that of the tree, which its format has bounded.
void ValidateGroup(const Group& group) {
  for (const Member& member : group.members) {
    std::visit(Overloaded{[&](const std::unique_ptr<Group>& child) {
                            if (child->table != nullptr) {
                              ValidateMember("table", member.key, *child->table, ValidateTable);
                            }
                            ValidateGroup(*child);
                          },
                          [&](const Tensor& tensor) {
                            ValidateMember("tensor", member.key, tensor, ValidateTensor);
                          },
                          [](const Value& /*value*/) {},
                          [&](const Table& table) {
                            ValidateMember("table", member.key, table, ValidateTable);
                          }},
               member.content);
  }
}

}  // namespace

std::string Collection::Json() const {
  if (!batch) return text;
  std::string json = fmt::format("\"shape\":[{}],", fmt::join(batch->size, ","));
  if (!batch->names.empty()) json.append("\"_names\":").append(batch->names) += ',';
  return json += text;
}

std::vector<Annotation>& AnnotationsOf(Content& content) {
  return std::visit(
      Overloaded{[](std::unique_ptr<Group>& group) -> std::vector<Annotation>& {
                   return group->annotations;
                 },
                 [](Tensor& tensor) -> std::vector<Annotation>& { return tensor.annotations; },
                 [](Value& value) -> std::vector<Annotation>& { return value.annotations; },
                 [](Table& table) -> std::vector<Annotation>& { return table.annotations; }},
      content);
}

void Validate(const Checkpoint& checkpoint) { ValidateGroup(checkpoint.root); }

}  // namespace ckptfs
