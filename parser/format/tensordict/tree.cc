#include "parser/format/tensordict/tree.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/codec/json_document.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/tensordict/directory.h"
#include "parser/format/tensordict/leaf.h"
#include "parser/format/tensordict/value.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensordict {
namespace {

constexpr uint64_t kMostMeta = 1 << 27;  // Bytes of a meta.json.
constexpr size_t kMostUnlistedItems = 10'000;
constexpr uint64_t kLastVersion = 1;  // Of the layout.

// Where a collection is.
struct Place {
  const Directory& directory;
  std::string path;  // The keys on the way there, for messages: "layer.0.".
  int depth = 0;
};

json::Document ReadMeta(const Directory& directory, Budget& budget) {
  const std::optional<Record> record = directory.Open(kMetaName);
  if (!record) Fail(EBADMSG, "no such file");
  record->Check();
  if (record->data.length > kMostMeta) {
    Fail(EFBIG, "has {} bytes (maximum {})", record->data.length, kMostMeta);
  }
  budget.Grow(StoredSize(record->data));
  return json::Document::Of(record->data, budget);
}

// Whether an entry is one of a collection: it has a type.
bool IsCollection(json::Node entry) {
  const auto type = entry.Find("type");
  return type && type->kind() != json::Node::Kind::kNull;
}

bool IsTensor(json::Node entry) { return entry.Find("dtype") && entry.Find("shape"); }

bool IsNested(json::Node entry) {
  const auto is_nested = entry.Find("is_nested");
  return is_nested && is_nested->kind() == json::Node::Kind::kTrue;
}

// Whether version 0.3 may have written it, which listed no collections. Version 0.4 listed them,
// 0.5 and later have more fields for each tensor.
bool MayBeOfVersion3(json::Node meta) {
  if (meta.Find("_format_version")) return false;
  json::Members members(meta);
  while (const auto member = members.Next()) {
    if (member->value.is_object() &&
        (IsCollection(member->value) || member->value.Find("is_nested")))
      return false;
  }
  return true;
}

class TreeReader {
 public:
  explicit TreeReader(Budget& budget) : budget_(budget) {}

  Checkpoint Run(const Directory& root) {
    Content content = Read({.directory = root, .path = ""});
    if (auto* group = std::get_if<std::unique_ptr<Group>>(&content)) {
      checkpoint_.root = std::move(**group);
    } else {
      checkpoint_.root.members.push_back({{.text = "value"}, std::move(content)});
    }
    losses_.Finish();
    return std::move(checkpoint_);
  }

 private:
  // Throws Error if the meta.json there is not what it must be.
  Content Read(const Place& place) {
    if (place.depth == kMostDepth) Fail(EFBIG, "is nested more than {} deep", kMostDepth);
    const json::Document document = ReadMeta(place.directory, budget_);
    const json::Node meta = document.root();
    if (!meta.is_object()) Fail(EBADMSG, "is not a JSON object");
    const std::string_view type = TextAt(meta, "_type");
    if (type.empty()) Fail(EBADMSG, "has no _type, which names the class of what was saved");
    if (ClassOf(type).empty()) Fail(EBADMSG, "its _type is {}, which is not a class", Quoted(type));
    const auto version = meta.Find("_format_version");
    if (version && version->kind() == json::Node::Kind::kWhole && version->whole() > kLastVersion) {
      Fail(ENOTSUP, "unsupported version {} of the layout (maximum {})", version->whole(),
           kLastVersion);
    }
    return ReadKind(meta, type, place);
  }

  Content ReadKind(json::Node meta, std::string_view type, const Place& place) {
    switch (KindOf(type)) {
      case CollectionKind::kTensorDict:
        return ReadTensorDict(meta, type, place);
      case CollectionKind::kStack:
        return ReadItems(meta, type, place);
      case CollectionKind::kValue:
        return ReadValue(meta, type, place);
      case CollectionKind::kValueStack:
        return meta.Find("data") ? ReadValueStack(meta, type, place) : ReadItems(meta, type, place);
      case CollectionKind::kView:
        return ReadView(meta, type, place);
      case CollectionKind::kTensorClass:
        break;
    }
    const auto is_value = meta.Find("_is_non_tensor");
    if (is_value && is_value->kind() == json::Node::Kind::kTrue) {
      return ReadValue(meta, type, place);
    }
    if (auto inner = place.directory.Below("_tensordict"); inner != nullptr) {
      return ReadTensorClass(meta, type, std::move(inner), place);
    }
    return ReadTensorDict(meta, type, place);
  }

  std::unique_ptr<Group> GroupOf(std::string_view type) {
    auto group = std::make_unique<Group>();
    if (type != kTensorDictType) group->python_type = ClassOf(type);
    budget_.Charge(2 * (sizeof(Group) + type.size()));
    return group;
  }

  Content ReadTensorDict(json::Node meta, std::string_view type, const Place& place) {
    auto group = GroupOf(type);
    Head head;
    if (const auto shape = meta.Find("shape")) head.batch_size = SizesOf(*shape, "batch size");
    const std::string_view device = TextAt(meta, "device");
    head.has_device = !device.empty() && device != "None";
    if (head.has_device && device != "cpu") {
      group->annotations.emplace_back("saved_device", ValueOf(*meta.Find("device"), budget_).json);
    }
    if (const auto names = meta.Find("_names")) {
      head.names = NamesOf(*names, head.batch_size.size());
    }
    group->collection = CollectionOf(std::move(head), type, budget_);
    AddEntries(meta, place, *group);
    if (MayBeOfVersion3(meta)) {
      if (place.directory.is_listed()) {
        AddUnlisted(meta, place, *group);
      } else {
        WarnOfUnlisted();
      }
    }
    return group;
  }

  void AddEntries(json::Node meta, const Place& place, Group& group) {
    const auto members = json::UniqueMembers(meta, budget_);
    std::pmr::unordered_set<std::string_view, SecretHash> tensors(&budget_);
    for (const auto& [key, entry] : members) {
      if (entry.is_object() && !IsCollection(entry) && IsTensor(entry)) tensors.insert(key);
    }
    for (const auto& [key, entry] : members) {
      if (!entry.is_object()) continue;
      if (tensors.contains(key)) {
        const bool has_rival = IsNested(entry) && tensors.contains(std::string(key) + ".shape");
        AddTensor(key, entry, has_rival, place, group);
      } else if (IsCollection(entry)) {
        AddCollection(key, DirectoryOf(key, place.directory), place, group);
      }
    }
  }

  void AddUnlisted(json::Node meta, const Place& place, Group& group) {
    for (const std::string& name : place.directory.Unlisted()) {
      if (meta.Find(name)) continue;
      auto below = place.directory.Below(name);
      if (below != nullptr && below->Open(kMetaName)) {
        AddCollection(name, std::move(below), place, group);
      }
    }
  }

  void WarnOfUnlisted() {
    if (std::exchange(has_warned_, true)) return;
    checkpoint_.warnings.emplace_back(
        "may be of tensordict 0.3, which left TensorDicts within others out of meta.json: those "
        "are "
        "not found here, because a web server does not list its files");
  }

  void Add(std::string_view key, Content content, Group& group) {
    // Once more for the names of its file.
    budget_.Charge(sizeof(Member) + 4 * key.size());
    group.members.push_back({{std::string(key), Key::Kind::kWhole}, std::move(content)});
  }

  // `has_rival`: another tensor has the file that its shapes would be in if it is nested.
  void AddTensor(std::string_view key, json::Node node, bool has_rival, const Place& place,
                 Group& group) {
    Tensor tensor;
    try {
      const auto is_nested = node.Find("is_nested");
      const LeafEntry entry = {
          .dtype = TextAt(node, "dtype"),
          .shape = SizesOf(*node.Find("shape"), "shape"),
          .device = TextAt(node, "device"),
          .is_nested = is_nested && is_nested->kind() == json::Node::Kind::kTrue};
      budget_.Charge(4 * (entry.shape.size() * sizeof(uint64_t) + entry.dtype.size()));
      if (entry.is_nested && has_rival) {
        Fail(EBADMSG, "is nested, but a tensor {} has the file of its shapes",
             Quoted(std::string(key) + ".shape"));
      }
      ReadLeaf(key, entry, place.directory, budget_, tensor);
      Add(key, losses_.Keep(std::move(tensor)), group);
    } catch (const Error& e) {
      Add(key, losses_.LoseTensor(PathOf(place.path, key), std::move(tensor), e), group);
    }
  }

  void AddCollection(std::string_view key, std::unique_ptr<Directory> directory, const Place& place,
                     Group& group) {
    Add(key, ReadBelow(std::move(directory), key, place), group);
  }

  // Returns the collection in `directory`, or its placeholder.
  Content ReadBelow(std::unique_ptr<Directory> directory, std::string_view key,
                    const Place& place) {
    try {
      if (directory == nullptr) Fail(EBADMSG, "its directory is missing");
      try {
        return Read({.directory = *directory,
                     .path = PathOf(place.path, key) + ".",
                     .depth = place.depth + 1});
      } catch (const Error& e) {
        throw WithContext(directory->PathOf(kMetaName), e);
      }
    } catch (const Error& e) {
      return losses_.LoseCollection(PathOf(place.path, key), e);
    }
  }

  // The directories of a stack are called 0, 1, ... Their number is not stored, and a server could
  // have any number of them.
  Content ReadItems(json::Node meta, std::string_view type, const Place& place) {
    auto group = GroupOf(type);
    const auto dimension = meta.Find("stack_dim");
    if (!dimension || dimension->kind() != json::Node::Kind::kWhole) {
      Fail(EBADMSG, "its stack_dim is not a whole number");
    }
    group->collection.text = StackText(dimension->whole(), TextAt(meta, "stack_dim_name"), type);
    for (size_t i = 0;; ++i) {
      const std::string name = std::to_string(i);
      auto below = place.directory.Below(name);
      if (below == nullptr) return group;
      if (!place.directory.is_listed() && ++unlisted_items_ > kMostUnlistedItems) {
        Fail(EFBIG, "has more than {} items in stacks, the maximum for a server",
             kMostUnlistedItems);
      }
      AddCollection(name, std::move(below), place, *group);
    }
  }

  Content ReadView(json::Node meta, std::string_view type, const Place& place) {
    auto group = GroupOf(type);
    group->collection.text = TextOfMembers(meta, "_source", budget_);
    AddCollection("_source", place.directory.Below("_source"), place, *group);
    return group;
  }

  Content ReadTensorClass(json::Node meta, std::string_view type, std::unique_ptr<Directory> inner,
                          const Place& place) {
    auto group = GroupOf(type);
    Fields fields = ReadFields(meta, place.directory, budget_);
    if (fields.error) Add("lost_fields", LoseFields(*fields.error, place), *group);
    group->collection = {.text = std::move(fields.text), .is_closed = true, .inner = ""};
    if (!fields.types.empty())
      group->annotations.emplace_back("field_types", std::move(fields.types));
    AddCollection("_tensordict", std::move(inner), place, *group);
    return group;
  }

  Content ReadValue(json::Node meta, std::string_view type, const Place& place) {
    Data data = ReadData(meta, type, place.directory, budget_);
    if (data.error) LoseFields(*data.error, place);
    Value& value = data.value;
    if (type != kNonTensorDataType && value.python_type.empty()) value.python_type = ClassOf(type);
    if (const auto inner = place.directory.Below("_tensordict"); inner != nullptr) {
      value.collection.inner = InnerText(*inner);
    }
    return std::move(value);
  }

  // Of a value that has a batch size: as versions before 0.5 have saved it.
  std::string InnerText(const Directory& directory) try {
    const json::Document document = ReadMeta(directory, budget_);
    Head head;
    if (const auto shape = document.root().Find("shape")) {
      head.batch_size = SizesOf(*shape, "batch size");
    }
    if (head.batch_size.empty()) return "";
    return CollectionOf(std::move(head), kTensorDictType, budget_).Json();
  } catch (const Error& e) {
    if (IsTransient(e.code())) throw;
    return "";
  }

  Content ReadValueStack(json::Node meta, std::string_view type, const Place& place) {
    const json::Node data = *meta.Find("data");
    if (data.is_list()) {
      Value value = ValueOf(data, budget_);
      value.python_type = ClassOf(type);
      value.collection.text = TextOfMembers(meta, "data", budget_);
      return value;
    }
    if (!data.is_text() || data.text() != kStackName) {
      Fail(EBADMSG, "its data is neither a list nor {}", Quoted(kStackName));
    }
    const auto record = place.directory.Open(kStackName);
    if (!record) Fail(EBADMSG, "no such file: {}", Quoted(kStackName));
    try {
      return ReadStack(*record, budget_);
    } catch (const Error& e) {
      throw WithContext(kStackName, e);
    }
  }

  // Returns the annotation for the fields of the collection at `place`.
  Content LoseFields(const Error& e, const Place& place) {
    const std::string_view path = place.path;
    return losses_.LoseCollection(path.substr(0, path.size() - (path.empty() ? 0 : 1)), e);
  }

  Budget& budget_;
  size_t unlisted_items_ = 0;  // Of stacks in folders that are not listed.
  bool has_warned_ = false;
  Checkpoint checkpoint_;
  Losses losses_{budget_, checkpoint_};
};

}  // namespace

Checkpoint ReadTree(const Directory& root, Budget& budget) { return TreeReader(budget).Run(root); }

bool IsZip(const Members& members) { return members.Find(kMetaName) != nullptr; }

Checkpoint ReadZip(const Source& /*source*/, Members members, const ReadOptions& /*options*/) try {
  return ReadTree(*MakeDirectory(members), members.budget());
} catch (const Error& e) {
  throw WithContext(kMetaName, e);
}

}  // namespace ckptfs::tensordict
