// A TensorDict is _make_td(class, state), whose state is a dict of attributes: "_tensordict" has
// the members, or "tensordicts" those that are stacked. A tensorclass is an object with the state
// {"tensordict": TensorDict, "non_tensordict": dict of its other fields}, and a value among tensors
// one whose field "data" is the value. For load_memmap, the members must be in the directories in
// which tensordict writes them.

#include "parser/format/torch/collections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/dtype.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/torch/children.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::torch {
namespace {

// Returns the state, or null if `value` is not a TensorDict.
const Value* StateOfTensorDict(const Value& value) {
  if (!pickle::IsObject(value) ||
      FindCallable(ObjectOf(value).target) != KnownCallable::kMakeTensorDict) {
    return nullptr;
  }
  const Values arguments = ItemsOf(ObjectOf(value).arguments);
  const bool has_state = arguments.size() == 2 && arguments[0].kind == Kind::kGlobal &&
                         arguments[1].kind == Kind::kDict;
  return has_state ? &arguments[1] : nullptr;
}

// The two members of the state of a tensorclass; null for other values.
struct TensorClassState {
  const Value* collection = nullptr;
  const Value* fields = nullptr;
};
TensorClassState StateOfTensorClass(const Value& value) {
  if (!pickle::IsObject(value) || ObjectOf(value).states().size() != 1) return {};
  const Value& state = ObjectOf(value).states()[0];
  if (state.kind != Kind::kDict || ItemsOf(state).size() != 4) return {};
  const TensorClassState found = {AttributeOf(state, "tensordict"),
                                  AttributeOf(state, "non_tensordict")};
  const bool has_both =
      found.collection != nullptr && found.fields != nullptr && found.fields->kind == Kind::kDict;
  return has_both ? found : TensorClassState();
}

// "<class 'module.Name'>".
std::string TypeOf(const Value& python_class) {
  constexpr size_t kMost = 1024;  // Bytes: many may share one long name.
  return fmt::format("<class '{}'>", pickle::GlobalName(python_class).substr(0, kMost));
}

// A list of names in JSON, as tensordict::Head has it.
std::string NamesOf(const Value* names, size_t count) {
  if (names == nullptr || names->kind != Kind::kList || ItemsOf(*names).size() != count) return "";
  std::string text;
  std::vector<std::string_view> seen;
  for (const Value& name : ItemsOf(*names)) {
    text += text.empty() ? '[' : ',';
    if (name.kind == Kind::kText) {
      if (std::ranges::count(seen, name.text()) != 0) return "";
      seen.push_back(name.text());
      json::AppendString(text, name.text());
    } else {
      text += "null";
    }
  }
  return seen.empty() ? "" : text + ']';
}

tensordict::Head HeadOf(const Value& state, Budget& budget) {
  tensordict::Head head;
  if (const Value* size = AttributeOf(state, "_batch_size")) {
    head.batch_size = Numbers(*size, "batch size");
  }
  const Value* device = AttributeOf(state, "_device");
  head.has_device = device != nullptr && device->kind != Kind::kNone;
  const Value* names = AttributeOf(state, "_td_dim_names");
  if (names != nullptr && names->kind == Kind::kList &&
      ItemsOf(*names).size() == head.batch_size.size()) {
    for (const Value& name : ItemsOf(*names)) {
      if (name.kind == Kind::kText) budget.Charge(12 * uint64_t{name.length});
    }
    head.names = NamesOf(names, head.batch_size.size());
  }
  return head;
}

void AddStack(const Value& state, std::string_view type, Interpretation& interpretation) {
  const Value* items = AttributeOf(state, "tensordicts");
  const Value* dimension = AttributeOf(state, "stack_dim");
  const Value* name = AttributeOf(state, "_td_dim_name");
  if (dimension == nullptr || dimension->kind != Kind::kInt || dimension->integer < 0) {
    Fail(EBADMSG, "its stack_dim is not a whole number");
  }
  interpretation.kind = ValueKind::kSequence;
  interpretation.type = tensordict::ClassOf(type);
  interpretation.collection.text =
      tensordict::StackText(static_cast<uint64_t>(dimension->integer),
                            name != nullptr && name->kind == Kind::kText ? name->text() : "", type);
  // Required by load_memmap for a stack of values.
  if (type == tensordict::kNonTensorStackType) interpretation.collection.text += ",\"device\":null";
  AddItems(interpretation.children, ItemsOf(*items));
}

bool IsStack(const Value& state) {
  const Value* items = AttributeOf(state, "tensordicts");
  return items != nullptr && items->kind == Kind::kList;
}

// Throws Error(EBADMSG) if `value` is a malformed collection.
bool AddCollection(const Value& value, Interpretation& interpretation, Budget& budget) {
  if (const Value* state = StateOfTensorDict(value)) {
    const std::string type = TypeOf(ItemsOf(ObjectOf(value).arguments)[0]);
    const Value* members = AttributeOf(*state, "_tensordict");
    interpretation.is_collection = true;
    budget.Work(IsStack(*state) ? ItemsOf(*AttributeOf(*state, "tensordicts")).size() : 1);
    if (IsStack(*state)) {
      AddStack(*state, type, interpretation);
      return true;
    }
    if (members == nullptr || members->kind != Kind::kDict) return false;
    interpretation.kind = ValueKind::kMapping;
    interpretation.type = type == tensordict::kTensorDictType ? "dict" : tensordict::ClassOf(type);
    interpretation.collection = tensordict::CollectionOf(HeadOf(*state, budget), type, budget);
    budget.Work(ItemsOf(*members).size());
    AddPairs(interpretation.children, ItemsOf(*members), budget);
    return true;
  }
  const Value* python_class = pickle::IsObject(value) ? ClassOfObject(value) : nullptr;
  if (python_class == nullptr) return false;
  if (pickle::IsGlobal(*python_class, "tensordict.tensorclass", "NonTensorStack") &&
      IsStack(ObjectOf(value).state())) {
    budget.Work(ItemsOf(*AttributeOf(ObjectOf(value).state(), "tensordicts")).size());
    AddStack(ObjectOf(value).state(), tensordict::kNonTensorStackType, interpretation);
    return true;
  }
  const TensorClassState state = StateOfTensorClass(value);
  if (state.collection == nullptr || StateOfTensorDict(*state.collection) == nullptr) return false;
  const std::string type = TypeOf(*python_class);
  interpretation.is_collection = true;
  interpretation.kind = ValueKind::kMapping;
  interpretation.type = tensordict::ClassOf(type);
  tensordict::AppendName(interpretation.collection.text, "_type");
  interpretation.collection.text += json::String(type);
  interpretation.collection.is_closed = true;
  budget.Charge(16 * type.size());
  interpretation.children.push_back({TextOf("_tensordict"), *state.collection, Child::Role::kPair});
  AddPairs(interpretation.children, ItemsOf(*state.fields), budget, Child::Role::kAttribute);
  return true;
}

}  // namespace

bool InterpretCollection(const Value& value, Interpretation& interpretation, Budget& budget) try {
  if (AddCollection(value, interpretation, budget)) return true;
  interpretation.is_collection = false;
  return false;
} catch (const Error& e) {
  if (e.code() != EBADMSG) throw;
  interpretation =
      Interpretation{.kind = ValueKind::kLeaf, .type = "", .children = Children(&budget)};
  return false;
}

std::vector<uint64_t> BatchSizeOfValue(const Value& value) try {
  const TensorClassState state = StateOfTensorClass(value);
  if (state.fields == nullptr || !IsTrue(AttributeOf(*state.fields, "_is_non_tensor"))) return {};
  const Value* collection = StateOfTensorDict(*state.collection);
  const Value* size = collection == nullptr ? nullptr : AttributeOf(*collection, "_batch_size");
  if (size == nullptr) return {};
  std::vector<uint64_t> numbers = Numbers(*size, "batch size");
  return numbers.size() > kMaxDimensions ? std::vector<uint64_t>() : numbers;
} catch (const Error& e) {
  if (e.code() != EBADMSG) throw;
  return {};
}

const Value* DataOfCollection(const Value& value) {
  if (!pickle::IsObject(value)) return nullptr;
  const Value* python_class = ClassOfObject(value);
  if (python_class == nullptr) return nullptr;
  if (pickle::IsGlobal(*python_class, "tensordict.nn.params", "TensorDictParams")) {
    return AttributeOfObject(value, "_param_td");
  }
  const TensorClassState state = StateOfTensorClass(value);
  if (state.fields == nullptr || !IsTrue(AttributeOf(*state.fields, "_is_non_tensor"))) {
    return nullptr;
  }
  return AttributeOf(*state.fields, "data");
}

}  // namespace ckptfs::torch
