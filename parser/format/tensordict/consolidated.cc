// Files of TensorDict.consolidate: see consolidated.h.
//
// A file begins with the bytes of a tensor, which may look like the short mark of another format.
// Its end is unambiguous, so this format is tried first.

#include "parser/format/tensordict/consolidated.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "parser/base/budget.h"
#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/json.h"
#include "parser/codec/json_document.h"
#include "parser/format.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/tensordict/leaf.h"
#include "parser/format/tensordict/value.h"

namespace ckptfs::tensordict {
namespace {

constexpr uint64_t kMostMetadata = 1 << 27;  // Bytes.
constexpr size_t kLengthSize = sizeof(uint64_t);

// The member `key` of a level, which must be an object.
json::Node ObjectAt(json::Node level, std::string_view key) {
  const auto member = level.Find(key);
  if (!member || !member->is_object()) Fail(EBADMSG, "its metadata have no object {}", Quoted(key));
  return *member;
}

// Returns the items of a list, which has `least` to `most` of them.
std::vector<json::Node> ItemsOf(json::Node list, size_t least, size_t most) {
  if (!list.is_list() || list.count() < least || list.count() > most) {
    Fail(EBADMSG, "its metadata are not a list of {} to {} items", least, most);
  }
  std::vector<json::Node> nodes;
  json::Items items(list);
  while (const auto item = items.Next()) nodes.push_back(*item);
  return nodes;
}

uint64_t WholeOf(json::Node node, std::string_view what) {
  if (node.kind() != json::Node::Kind::kWhole) Fail(EBADMSG, "its {} is not a whole number", what);
  return node.whole();
}

bool IsPartOfLevel(std::string_view key) {
  return key == "cls" || key == "leaves" || key == "non_tensors" || key == "cls_metadata";
}

// The keys of stacked members must be numbers; others could collide with properties of the stack.
void RequireNumbers(json::Node object) {
  json::Members members(object);
  while (const auto member = members.Next()) {
    const bool is_number = member->key.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number && !IsPartOfLevel(member->key)) {
      Fail(EBADMSG, "is a stack, but has a member {}", Quoted(member->key));
    }
  }
}

class FileReader {
 public:
  // The first `length` bytes of `file` are those of tensors.
  FileReader(ByteSourcePtr file, uint64_t length, Budget& budget)
      : file_(std::move(file)), length_(length), budget_(budget) {}

  Checkpoint Run(json::Node root) {
    checkpoint_.root = std::move(*ReadLevel(root, "", 0));
    losses_.Finish();
    return std::move(checkpoint_);
  }

 private:
  std::unique_ptr<Group> ReadLevel(json::Node level, const std::string& path, int depth) {
    if (depth == kMostDepth) Fail(EFBIG, "is nested more than {} deep", kMostDepth);
    const std::string_view name = TextAt(level, "cls");
    if (name.empty()) Fail(EBADMSG, "its metadata have no cls, which names its class");
    const json::Node metadata = ObjectAt(level, "cls_metadata");
    const json::Node leaves = ObjectAt(level, "leaves");
    const json::Node values = ObjectAt(level, "non_tensors");
    auto group = std::make_unique<Group>();
    budget_.Charge(2 * (sizeof(Group) + name.size()));
    if (name == "LazyStackedTensorDict" || name == "NonTensorStack") {
      for (const json::Node members : {level, leaves, values}) RequireNumbers(members);
      SetStack(name == "NonTensorStack" ? kNonTensorStackType : kLazyStackType, metadata, *group);
      budget_.Charge(2 * group->collection.text.size());
    } else {
      if (name != "TensorDict") group->python_type = ClassOf(name).empty() ? name : ClassOf(name);
      Head head = HeadOf(metadata, *group);
      // As in tensordict, a member of that name hides the names of dimensions.
      for (const json::Node members : {level, leaves, values}) {
        if (members.Find("_names")) head.names.clear();
      }
      group->collection = CollectionOf(std::move(head), kTensorDictType, budget_);
    }
    AddLeaves(leaves, path, *group);
    AddValues(values, path, *group);
    for (const auto& [key, below] : json::UniqueMembers(level, budget_)) {
      if (below.is_object() && !IsPartOfLevel(key)) {
        Add(key, ReadBelow(below, PathOf(path, key), depth + 1), *group);
      }
    }
    return ClassOf(name).empty() ? std::move(group) : TensorClassOf(std::move(group), name);
  }

  Content ReadBelow(json::Node level, const std::string& path, int depth) try {
    return ReadLevel(level, path + ".", depth);
  } catch (const Error& e) {
    return losses_.LoseCollection(path, e);
  }

  void SetStack(std::string_view type, json::Node metadata, Group& group) {
    const auto dimension = metadata.Find("stack_dim");
    if (!dimension) Fail(EBADMSG, "its metadata have no stack_dim");
    group.python_type = ClassOf(type);
    group.collection.text =
        StackText(WholeOf(*dimension, "stack_dim"), TextAt(metadata, "stack_dim_name"), type);
  }

  static Head HeadOf(json::Node metadata, Group& group) {
    Head head;
    if (const auto size = metadata.Find("batch_size"))
      head.batch_size = SizesOf(*size, "batch size");
    if (const auto names = metadata.Find("names")) {
      head.names = NamesOf(*names, head.batch_size.size());
    }
    const std::string_view device = TextAt(metadata, "device");
    head.has_device = !device.empty();
    if (head.has_device && device != "cpu") {
      group.annotations.emplace_back("saved_device", json::String(device));
    }
    return head;
  }

  // Returns the tensorclass whose fields are in `inner`, a TensorDict.
  std::unique_ptr<Group> TensorClassOf(std::unique_ptr<Group> inner, std::string_view type) {
    auto group = std::make_unique<Group>();
    group->python_type = std::exchange(inner->python_type, "");
    group->collection = {.text = "\"_type\":" + json::String(type), .is_closed = true, .inner = ""};
    budget_.Charge(2 * (sizeof(Group) + type.size()));
    Add("_tensordict", std::move(inner), *group);
    return group;
  }

  void AddLeaves(json::Node leaves, const std::string& path, Group& group) {
    const auto members = json::UniqueMembers(leaves, budget_);
    const Jagged jagged(members, budget_);
    for (const auto& [key, leaf] : members) {
      if (!jagged.IsPart(key)) {
        Add(key, ReadLeaf(leaf, PathOf(path, key)), group);
      } else if (auto composite = jagged.CompositeOf(key)) {
        auto parts = std::make_unique<Group>();
        parts->about = std::move(composite->about);
        budget_.Charge(4 * sizeof(Group));
        for (const auto& [name, node] : composite->parts) {
          Add(name, ReadLeaf(node, PathOf(path, composite->key)), *parts);
        }
        Add(composite->key, std::move(parts), group);
      }
    }
  }

  Content ReadLeaf(json::Node leaf, const std::string& path) {
    Tensor tensor;
    try {
      constexpr size_t kLeast = 5;
      constexpr size_t kMost = 6;  // The last one is the ragged dimension of a jagged tensor.
      const auto items = ItemsOf(leaf, kLeast, kMost);
      const std::vector<uint64_t> shape = SizesOf(items[1], "shape");
      const uint64_t begin = WholeOf(items[2], "begin");
      const uint64_t end = WholeOf(items[3], "end");
      const uint64_t padding = WholeOf(items[4], "padding");
      if (!items[0].is_text()) Fail(EBADMSG, "its dtype is not text");
      if (begin > end || end > length_ || padding > end - begin) {
        Fail(EBADMSG,
             "data out of range: bytes {} to {} with {} of padding (tensors end at byte {})", begin,
             end, padding, length_);
      }
      const uint64_t length = end - begin - padding;
      SetType(items[0].text(), shape, length, tensor);
      budget_.Charge(4 * (shape.size() * sizeof(uint64_t) + items[0].text().size()));
      const uint64_t need = ByteSize(tensor.dtype, tensor.shape);
      tensor.data = {.source = file_, .offset = begin, .length = need};
      if (length != need) {
        Fail(EBADMSG, "size mismatch (found {} bytes, dtype and shape need {})", length, need);
      }
      tensor.file_offset = begin;
      tensor.is_in_file = true;
      return losses_.Keep(std::move(tensor));
    } catch (const Error& e) {
      return losses_.LoseTensor(path, std::move(tensor), e);
    }
  }

  void AddValues(json::Node values, const std::string& path, Group& group) {
    for (const auto& [key, node] : json::UniqueMembers(values, budget_)) {
      Add(key, ReadValue(node, PathOf(path, key)), group);
    }
  }

  Content ReadValue(json::Node node, const std::string& path) try {
    constexpr size_t kLeast = 1;
    constexpr size_t kMost = 3;
    const auto items = ItemsOf(node, kLeast, kMost);
    Value value = ValueOf(items[0], budget_);
    Head head;
    if (items.size() > 1) head.batch_size = SizesOf(items[1], "batch size");
    head.has_device = items.size() > 2 && items[2].is_text();
    if (!head.batch_size.empty()) {
      value.collection.inner = CollectionOf(std::move(head), kTensorDictType, budget_).Json();
    }
    return value;
  } catch (const Error& e) {
    return losses_.LoseCollection(path, e);
  }

  void Add(std::string_view key, Content content, Group& group) {
    // Once more for the names of its file.
    budget_.Charge(sizeof(Member) + 4 * key.size());
    group.members.push_back({{std::string(key), Key::Kind::kWhole}, std::move(content)});
  }

  const ByteSourcePtr file_;
  const uint64_t length_;
  Budget& budget_;
  Checkpoint checkpoint_;
  Losses losses_{budget_, checkpoint_};
};

std::string_view HeaderText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns whether the end of the file looks like the metadata of such a file.
//
// There is no magic number. Required are a length that fits, before it the end of a JSON object,
// and in the visible part of the object the name of the member that each level has last.
bool IsConsolidated(const Probe& probe) {
  constexpr uint64_t kLeast = 2;
  if (probe.size < kLengthSize + kLeast) return false;
  const uint64_t room = probe.size - kLengthSize;
  if (probe.tail.size() < kLengthSize) return false;  // The tail of a compressed member is unknown.
  const auto before = probe.tail.first(probe.tail.size() - kLengthSize);
  ByteReader reader("length", probe.tail.last(kLengthSize));
  const auto length = reader.Read<uint64_t>("length");
  if (length < kLeast || length > room) return false;
  const std::string_view text =
      HeaderText(before.last(static_cast<size_t>(std::min<uint64_t>(length, before.size()))));
  if (!text.ends_with('}')) return false;
  if (text.size() == length && !text.starts_with('{')) return false;
  return text.find("\"cls_metadata\"") != std::string_view::npos;
}

}  // namespace

Checkpoint ReadConsolidated(const ByteSourcePtr& file, Budget& budget) {
  std::array<std::byte, kLengthSize> bytes = {};
  if (file->size() < bytes.size()) Fail(EBADMSG, "missing length of metadata");
  const uint64_t room = file->size() - bytes.size();
  file->ReadAt(room, bytes);
  const auto length = ByteReader("length", bytes).Read<uint64_t>("length");
  if (length > room) {
    Fail(EBADMSG, "invalid length of metadata (found {}, maximum {})", length, room);
  }
  if (length > kMostMetadata) {
    Fail(EFBIG, "its metadata have {} bytes (maximum {})", length, kMostMetadata);
  }
  try {
    budget.Grow(length);
    const json::Document document = json::Document::Of({file, room - length, length}, budget);
    Checkpoint checkpoint = FileReader(file, room - length, budget).Run(document.root());
    DropBatchSizesAroundComposites(checkpoint.root, budget);
    return checkpoint;
  } catch (const Error& e) {
    throw WithContext(fmt::format("metadata at byte {}", room - length), e);
  }
}

namespace {

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  return ReadConsolidated(source.file, *options.budget);
}

}  // namespace

}  // namespace ckptfs::tensordict

namespace ckptfs {

extern const Format tensordict_consolidated_format{
    .name = "tensordict", .matches = tensordict::IsConsolidated, .parse = tensordict::Parse};

}  // namespace ckptfs
