#include "parser/format/tensordict/fields.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "parser/format/tensordict/collection.h"
#include "parser/format/tensordict/lost.h"
#include "parser/format/tensordict/pickled.h"
#include "parser/format/tensordict/value.h"
#include "parser/json.h"

namespace ckptfs::tensordict {
namespace {

constexpr std::string_view kData = "data";

// Members that tell a loader about the directory, and of which a value or a tensorclass has none.
bool IsOfTheLayout(std::string_view key) { return key == "_class" || key == "_format_version"; }

// Whether a member of a value is one that each has, and which tells nothing.
bool IsUsual(std::string_view key, json::Node value) {
  using Kind = json::Node::Kind;
  if (key == "_metadata") return value.kind() == Kind::kNull;
  if (key == "_is_non_tensor") return value.kind() == Kind::kTrue;
  return key == "_type" || key == kData || IsOfTheLayout(key);
}

struct Other {
  std::vector<std::pair<std::string, Value>> fields;
  std::optional<Error> error;
};

Other ReadOther(const Directory& directory, Budget& budget) {
  Other other;
  const std::optional<Record> record = directory.Open(kFieldsName);
  if (!record) return other;
  try {
    other.fields = ReadFields(*record, budget);
  } catch (const Error& e) {
    if (IsLack(e.code())) throw;
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

void AddMembers(json::Node meta, std::string_view without, Fields& fields, Budget& budget) {
  for (const auto& [key, value] : json::UniqueMembers(meta, budget)) {
    if (key != without && !IsOfTheLayout(key)) {
      AddField(key, ValueOf(value, budget), fields, budget);
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
  Fields fields;
  AddMembers(meta, "", fields, budget);
  Other other = ReadOther(directory, budget);
  for (const auto& [name, value] : other.fields) AddField(name, value, fields, budget);
  if (!fields.types.empty()) fields.types = "{" + fields.types + "}";
  fields.error = std::move(other.error);
  return fields;
}

Data ReadData(json::Node meta, std::string_view type, const Directory& directory, Budget& budget) {
  Data data;
  Other other = ReadOther(directory, budget);
  data.error = std::move(other.error);
  const auto pickled =
      std::ranges::find(other.fields, kData, &std::pair<std::string, Value>::first);
  if (pickled != other.fields.end()) {
    data.value = std::move(pickled->second);
    other.fields.erase(pickled);
  } else if (const auto node = meta.Find(kData)) {
    data.value = ValueOf(*node, budget);
  } else if (data.error) {
    data.value = Lost("object", data.error->what());
  } else {
    data.value.json = "null";
  }
  if (type == kNonTensorDataType && HasOnlyUsual(meta) && other.fields.empty()) return data;
  Fields fields;
  AddMembers(meta, kData, fields, budget);
  for (const auto& [name, value] : other.fields) AddField(name, value, fields, budget);
  data.value.collection.text = std::move(fields.text);
  return data;
}

std::string TextOfMembers(json::Node meta, std::string_view without, Budget& budget) {
  Fields fields;
  AddMembers(meta, without, fields, budget);
  return std::move(fields.text);
}

}  // namespace ckptfs::tensordict
