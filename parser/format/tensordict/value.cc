#include "parser/format/tensordict/value.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/json.h"
#include "parser/codec/pickle.h"
#include "parser/format/common/annotations.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/torch/value.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensordict {
namespace {

// The charge for each value, and for each byte of its text, which meta.json repeats.
constexpr uint64_t kCostOfValue = 16;
constexpr uint64_t kCopies = 3;

// Each Write appends a value and returns its type, which is empty if JSON expresses it.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget), types_(budget) {}

  // The depth of the recursion is that of the document, which its reader has bounded.
  std::string_view Write(json::Node node) {
    if (node.is_list()) return WriteList(node);
    if (node.is_object()) return WriteObject(node);
    const size_t begin = out_.size();
    const std::string_view type = json::AppendLeaf(out_, node);
    budget_.Charge(kCostOfValue + kCopies * (out_.size() - begin));
    return type;
  }

  std::string TakeText() { return std::move(out_); }

  // The types of what is inside.
  PythonTypes& types() { return types_; }

 private:
  std::string_view WriteList(json::Node node) {
    budget_.Charge(kCostOfValue);
    json::AppendList(out_, node, [this](size_t index, json::Node item) {
      WriteChild(std::to_string(index), item);
    });
    return "";
  }

  std::string_view WriteObject(json::Node node) {
    budget_.Charge(kCostOfValue);
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : json::UniqueMembers(node, budget_)) {
      if (!std::exchange(is_first, false)) out_ += ',';
      budget_.Charge(kCopies * (key.size() + 4));
      json::AppendString(out_, key);
      out_ += ':';
      WriteChild(key, value);
    }
    out_ += '}';
    return "";
  }

  void WriteChild(std::string_view step, json::Node value) {
    const auto inside = types_.Enter(step);
    types_.Add(Write(value));
  }

  Budget& budget_;
  std::string out_;
  PythonTypes types_;
};

}  // namespace

Value ValueOf(json::Node node, Budget& budget) {
  Writer writer(budget);
  Value value;
  value.python_type = writer.Write(node);
  writer.types().AddTo(value);
  value.json = writer.TakeText();
  return value;
}

namespace {

using pickle::ItemsOf;
using pickle::Kind;

constexpr int kMostDepth = 64;  // Of stacks; torch has no more dimensions.

// A pickle in memory, which is charged to `budget` while it is there.
class Bytes {
 public:
  Bytes(const Record& record, Budget& budget) : budget_(budget) {
    record.Check();
    budget.Grow(StoredSize(record.data));
    budget.Charge(record.data.length);
    budget.WorkOnBytes(record.data.length);
    bytes_.resize(record.data.length);
    if (!bytes_.empty()) record.data.source->ReadAt(record.data.offset, bytes_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { budget_.Refund(bytes_.size()); }

  std::span<const std::byte> get() const { return bytes_; }

 private:
  Budget& budget_;
  std::vector<std::byte> bytes_;
};

bool IsOfLists(std::span<const pickle::Value> items) {
  return std::ranges::all_of(items, [&](const pickle::Value& item) {
    return item.kind == Kind::kList && ItemsOf(item).size() == ItemsOf(items.front()).size();
  });
}

std::unique_ptr<Group> StackOf(const pickle::Value& list, int depth, Budget& budget) {
  if (depth == kMostDepth) Fail(EFBIG, "lists are nested more than {} deep", kMostDepth);
  const auto items = ItemsOf(list);
  const bool is_of_lists = IsOfLists(items);
  budget.Work(items.size() + 1);
  auto stack = std::make_unique<Group>();
  stack->python_type = ClassOf(kNonTensorStackType);
  stack->collection.text = "\"stack_dim\":0,\"_type\":" + json::String(kNonTensorStackType);
  for (const pickle::Value& item : items) {
    constexpr uint64_t kCostOfGroup = 512;  // Bytes, with the texts above.
    budget.Charge(sizeof(Member) + (is_of_lists ? kCostOfGroup : 0));
    Key key{std::to_string(stack->members.size()), Key::Kind::kWhole};
    if (is_of_lists) {
      stack->members.push_back({std::move(key), StackOf(item, depth + 1, budget)});
    } else {
      stack->members.push_back({std::move(key), torch::ValueOf(item, budget)});
    }
  }
  return stack;
}

}  // namespace

std::vector<std::pair<std::string, Value>> ReadFields(const Record& record, Budget& budget) {
  const Bytes bytes(record, budget);
  const pickle::Graph graph = pickle::Load(bytes.get(), budget);
  std::vector<std::pair<std::string, Value>> fields;
  if (graph.root().kind != Kind::kDict) return fields;
  const auto items = ItemsOf(graph.root());
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].kind != Kind::kText) continue;
    budget.Charge(sizeof fields.front() + 4 * items[i].text().size());
    fields.emplace_back(items[i].text(), torch::ValueOf(items[i + 1], budget));
  }
  return fields;
}

std::unique_ptr<Group> ReadStack(const Record& record, Budget& budget) {
  const Bytes bytes(record, budget);
  const pickle::Graph graph = pickle::Load(bytes.get(), budget);
  if (graph.root().kind != Kind::kList) Fail(EBADMSG, "not a list");
  return StackOf(graph.root(), 0, budget);
}

namespace {

constexpr std::string_view kData = "data";
constexpr std::string_view kType = "_type";

// Returns whether a member is about the directory, and not a field of a value or a tensorclass.
bool IsOfTheLayout(std::string_view key) { return key == "_class" || key == "_format_version"; }

// Whether all values have this member.
bool IsUsual(std::string_view key, json::Node value) {
  if (key == "_metadata") return value.kind() == json::Node::Kind::kNull;
  if (key == "_is_non_tensor") return value.kind() == json::Node::Kind::kTrue;
  return key == kType || key == kData || IsOfTheLayout(key);
}

// The fields of other.pickle, each name once; as in Python, the last one of two counts.
struct Other {
  std::vector<std::pair<std::string, Value>> fields;
  std::unordered_map<std::string, size_t, SecretHash> places;
  std::optional<Error> error;

  const Value* Find(const std::string& name) const {
    const auto found = places.find(name);
    return found == places.end() ? nullptr : &fields[found->second].second;
  }
};

Other ReadOther(const Directory& directory, Budget& budget) {
  Other other;
  const std::optional<Record> record = directory.Open(kFieldsName);
  if (!record) return other;
  try {
    for (auto& [name, value] : ReadFields(*record, budget)) {
      constexpr uint64_t kCostOfPlace = 128;  // Bytes.
      budget.Charge(kCostOfPlace + name.size());
      const auto [place, is_new] = other.places.emplace(name, other.fields.size());
      if (is_new) {
        other.fields.emplace_back(std::move(name), std::move(value));
      } else {
        other.fields[place->second].second = std::move(value);
      }
    }
  } catch (const Error& e) {
    if (IsTransient(e.code())) throw;
    other.error = WithContext(record->member, e);
  }
  return other;
}

void AddField(std::string_view name, const Value& value, Fields& fields, Budget& budget) {
  AppendName(fields.text, name);
  fields.text += value.json;
  budget.Charge(2 * (name.size() + value.json.size()));
  if (value.python_type.empty()) return;
  AppendName(fields.types, name);
  fields.types += json::String(value.python_type);
  budget.Charge(2 * (name.size() + value.python_type.size()));
}

// Adds the members of `meta` and the fields of `other`, which override members of the same name,
// all but `without`.
void AddAll(json::Node meta, const Other& other, std::string_view without, Fields& fields,
            Budget& budget) {
  for (const auto& [key, value] : json::UniqueMembers(meta, budget)) {
    const bool is_pickled = key != kType && other.Find(std::string(key)) != nullptr;
    if (key == without || is_pickled || IsOfTheLayout(key)) continue;
    AddField(key, ValueOf(value, budget), fields, budget);
  }
  for (const auto& [name, value] : other.fields) {
    if (name != without && name != kType && !IsOfTheLayout(name)) {
      AddField(name, value, fields, budget);
    }
  }
}

bool HasOnlyUsual(json::Node meta) {
  json::Members members(meta);
  while (const auto member = members.Next()) {
    if (!IsUsual(member->key, member->value)) return false;
  }
  return true;
}

}  // namespace

Fields ReadFields(json::Node meta, const Directory& directory, Budget& budget) {
  Other other = ReadOther(directory, budget);
  Fields fields;
  AddAll(meta, other, "", fields, budget);
  if (!fields.types.empty()) fields.types = "{" + fields.types + "}";
  fields.error = std::move(other.error);
  return fields;
}

Data ReadData(json::Node meta, std::string_view type, const Directory& directory, Budget& budget) {
  Data data;
  Other other = ReadOther(directory, budget);
  data.error = std::move(other.error);
  const Value* pickled = other.Find(std::string(kData));
  if (pickled != nullptr) {
    data.value = *pickled;
  } else if (const auto node = meta.Find(kData)) {
    data.value = ValueOf(*node, budget);
  } else if (data.error) {
    data.value = Lost("object", *data.error);
  } else {
    data.value.json = "null";
  }
  const bool has_other = other.fields.size() > (pickled == nullptr ? 0 : 1);
  // Members of a meta.json of tensordict stay there at any length, so that tensordict can load
  // them.
  const bool is_long = pickled == nullptr && data.value.json.size() > kMaxInlineJson;
  if (type == kNonTensorDataType && HasOnlyUsual(meta) && !has_other && !is_long) return data;
  Fields fields;
  AddAll(meta, other, kData, fields, budget);
  data.value.collection.text = std::move(fields.text);
  return data;
}

std::string TextOfMembers(json::Node meta, std::string_view without, Budget& budget) {
  Fields fields;
  AddAll(meta, {}, without, fields, budget);
  return std::move(fields.text);
}

}  // namespace ckptfs::tensordict
