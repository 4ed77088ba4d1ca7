#include "parser/format/tensordict/fields.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "parser/base/json.h"
#include "parser/base/secret_hash.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/tensordict/losses.h"
#include "parser/format/tensordict/pickled.h"
#include "parser/format/tensordict/value.h"

namespace ckptfs::tensordict {
namespace {

constexpr std::string_view kData = "data";
constexpr std::string_view kType = "_type";

// Members that tell a loader about the directory, and of which a value or a tensorclass has none.
bool IsOfTheLayout(std::string_view key) { return key == "_class" || key == "_format_version"; }

// Whether a member of a value is one that each has, and which tells nothing.
bool IsUsual(std::string_view key, json::Node value) {
  using Kind = json::Node::Kind;
  if (key == "_metadata") return value.kind() == Kind::kNull;
  if (key == "_is_non_tensor") return value.kind() == Kind::kTrue;
  return key == kType || key == kData || IsOfTheLayout(key);
}

// What other.pickle has, each name once; as in Python, the last one of two counts.
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

// Adds the members of `meta` and the fields of `other`, which come before members of the same name,
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
    data.value = Lost("object", data.error->what());
  } else {
    data.value.json = "null";
  }
  const bool has_other = other.fields.size() > (pickled == nullptr ? 0 : 1);
  // What tensordict has in a meta.json stays there, however long it is: then it can load it.
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
