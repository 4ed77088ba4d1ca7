#include "parser/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/io/folder.h"

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

bool HasSmallerNumber(const Member& a, const Member& b) {
  const std::string& x = a.key.text;
  const std::string& y = b.key.text;
  return x.size() != y.size() ? x.size() < y.size() : x < y;
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

namespace {

// The members of `group` whose keys begin with `key` and a dot; their keys are what follows.
Group TakeDotted(Group& group, std::string_view key) {
  Group taken;
  for (Member& member : group.members) {
    std::string& text = member.key.text;
    const bool is_below = member.key.kind == Key::Kind::kText && text.size() > key.size() + 1 &&
                          text.starts_with(key) && text[key.size()] == '.';
    if (!is_below) continue;
    text.erase(0, key.size() + 1);
    taken.members.push_back(std::move(member));
  }
  return taken;
}

[[noreturn]] void FailFor(const Group& group, std::string_view path) {
  std::set<std::string> keys;
  for (const Member& member : group.members) {
    const std::string& text = member.key.text;
    const bool is_group = std::holds_alternative<std::unique_ptr<Group>>(member.content);
    if (is_group || text.find('.') != std::string::npos) {
      keys.insert(is_group ? text : text.substr(0, text.find('.')));
    }
  }
  const std::vector<std::string> names(keys.begin(), keys.end());
  Fail(ENOENT, "subtree {}: no dict of that key{}{}", Quoted(path), names.empty() ? "" : ", but ",
       Listed(names));
}

// Takes the group of `key` out of `group`.
Group TakeGroup(Group& group, std::string_view key, std::string_view path) {
  for (Member& member : group.members) {
    auto* const child = std::get_if<std::unique_ptr<Group>>(&member.content);
    if (child != nullptr && member.key.text == key) return std::move(**child);
  }
  Group dotted = TakeDotted(group, key);
  if (dotted.members.empty()) FailFor(group, path);
  return dotted;
}

}  // namespace

void TakeSubtree(Checkpoint& checkpoint, std::string_view path) {
  for (std::string_view rest = path; !rest.empty();) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    const std::string_view key = rest.substr(0, slash);
    rest.remove_prefix(std::min(slash + 1, rest.size()));
    if (key.empty()) continue;
    Group group = TakeGroup(checkpoint.root, key, path);
    checkpoint.root = std::move(group);
  }
}

}  // namespace ckptfs
