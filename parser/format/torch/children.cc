#include "parser/format/torch/children.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "parser/base/hash.h"
#include "parser/format/torch/globals.h"

namespace ckptfs::torch {
namespace {

Value Index(size_t i) {
  Value index;
  index.kind = Kind::kInt;
  index.integer = static_cast<int64_t>(i);
  return index;
}

// Returns the identity of a key that is not a text: 1, 1.0 and True are the same key. Keys that
// Python compares by content (tuples, classes) are distinguished by their node: the writer of a
// dict has compared them already.
std::string IdentityOfKey(const Value& key) {
  switch (key.kind) {
    case Kind::kBytes:
    case Kind::kBigInt:
    case Kind::kDecimal:
      return fmt::format("{}{}", static_cast<int>(key.kind), key.text());
    case Kind::kBool:
    case Kind::kInt:
      return fmt::format("n{}", key.integer);
    case Kind::kFloat:
      return fmt::format("n{}", key.real);
    case Kind::kNone:
      return "N";
    default:
      return fmt::format("p{}", static_cast<const void*>(key.node));
  }
}

// The keys of a dict so far.
class Keys {
 public:
  explicit Keys(Budget& budget) : budget_(budget) {}

  // Returns the position of the child with `key`. Records `next` as the position of a new key, and
  // returns it.
  size_t PlaceOf(const Value& key, size_t next) {
    const bool has_text = key.kind == Kind::kText || key.kind == Kind::kBytes ||
                          key.kind == Kind::kBigInt || key.kind == Kind::kDecimal;
    if (key.kind == Kind::kText && key.length <= kShort) {
      return texts_.try_emplace(key.text(), next).first->second;
    }
    // A long text may be referenced many times, and comparing it each time would take long.
    if (has_text && key.length > kShort) {
      const auto [seen, is_new] = seen_.try_emplace(key.text_data, next);
      if (!is_new) return seen->second;
      auto& places = key.kind == Kind::kText ? texts_ : bytes_;
      return seen->second = places.try_emplace(key.text(), next).first->second;
    }
    return others_.try_emplace(std::pmr::string(IdentityOfKey(key), &budget_), next).first->second;
  }

 private:
  static constexpr size_t kShort = 256;  // Bytes.

  Budget& budget_;
  std::pmr::unordered_map<std::string_view, size_t, SecretHash> texts_{&budget_};  // No copies.
  std::pmr::unordered_map<std::string_view, size_t, SecretHash> bytes_{&budget_};
  std::pmr::unordered_map<const char*, size_t> seen_{&budget_};
  std::pmr::unordered_map<std::pmr::string, size_t, SecretHash> others_{&budget_};
};

// Of one BUILD.
void AddState(Children& children, const Value& state, Budget& budget) {
  const auto is_attributes = [](const Value& v) {
    return v.kind == Kind::kDict || v.kind == Kind::kNone;
  };
  if (state.kind == Kind::kNone) return;
  if (state.kind == Kind::kDict) {
    AddPairs(children, ItemsOf(state), budget, Child::Role::kAttribute);
    return;
  }
  const bool is_pair = state.kind == Kind::kTuple && ItemsOf(state).size() == 2 &&
                       std::ranges::all_of(ItemsOf(state), is_attributes);
  if (!is_pair) {
    children.push_back({TextOf("state"), state, Child::Role::kAttribute});
    return;
  }
  for (const Value& part : ItemsOf(state)) {
    if (part.kind != Kind::kDict) continue;
    AddPairs(children, ItemsOf(part), budget, Child::Role::kAttribute);
  }
}

}  // namespace

std::string_view NameOfSequence(const Value& sequence) {
  switch (sequence.kind) {
    case Kind::kTuple:
      return "tuple";
    case Kind::kSet:
      return "set";
    case Kind::kFrozenSet:
      return "frozenset";
    default:
      return "list";
  }
}

bool IsSequence(const Value& value) {
  return value.kind == Kind::kList || value.kind == Kind::kTuple || value.kind == Kind::kSet ||
         value.kind == Kind::kFrozenSet;
}

Value TextOf(std::string_view literal) {
  Value text;
  text.kind = Kind::kText;
  text.text_data = literal.data();
  text.length = static_cast<uint32_t>(literal.size());
  return text;
}

void AddItems(Children& children, Values items) {
  for (const Value& item : items) {
    children.push_back({Index(children.size()), item, Child::Role::kItem});
  }
}

void AddPairs(Children& children, Values pairs, Budget& budget, Child::Role role) {
  Keys keys(budget);
  children.reserve(children.size() + pairs.size() / 2);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const size_t place = keys.PlaceOf(pairs[i], children.size());
    if (place == children.size()) {
      children.push_back({pairs[i], pairs[i + 1], role});
    } else {
      children[place].value = pairs[i + 1];
    }
  }
}

void AddMapping(Children& children, const Value& mapping, Budget& budget) {
  if (mapping.kind == Kind::kDict) {
    AddPairs(children, ItemsOf(mapping), budget);
    return;
  }
  if (!IsSequence(mapping)) return;
  std::pmr::vector<Value> pairs(&budget);
  for (const Value& pair : ItemsOf(mapping)) {
    if (!IsSequence(pair) || ItemsOf(pair).size() != 2) continue;
    pairs.insert(pairs.end(), ItemsOf(pair).begin(), ItemsOf(pair).end());
  }
  AddPairs(children, pairs, budget);
}

void AddStates(Children& children, const Object& object, Budget& budget) {
  for (const Value& state : object.states()) AddState(children, state, budget);
}

namespace {

// Returns the table, or null if `state` is not a dict with that attribute. Points into the pickle's
// graph.
const Value* TableOf(const Value& state, std::string_view name) {
  if (state.kind != Kind::kDict) return nullptr;
  const Values pairs = ItemsOf(state);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i].kind == Kind::kText && pairs[i].text() == name) return &pairs[i + 1];
  }
  return nullptr;
}

constexpr std::string_view kTables[] = {"_parameters", "_buffers", "_modules"};

bool IsPlainDict(const Value& value) {
  return value.kind == Kind::kDict ||
         (pickle::IsObject(value) &&
          FindCallable(ObjectOf(value).target) == KnownCallable::kOrderedDict);
}

bool IsEmptyContainer(const Value& value) {
  if (value.kind == Kind::kDict || IsSequence(value)) return ItemsOf(value).empty();
  if (!pickle::IsObject(value)) return false;
  const Object& object = ObjectOf(value);
  const KnownCallable known = FindCallable(object.target);
  const Values arguments = ItemsOf(object.arguments);
  const bool is_container = known == KnownCallable::kOrderedDict || known == KnownCallable::kSet;
  const bool is_made_empty =
      arguments.empty() || (IsSequence(arguments[0]) && ItemsOf(arguments[0]).empty());
  return is_container && is_made_empty && object.pairs().empty() && object.items().empty();
}

// Whether an attribute of a module is internal and unused: empty hooks.
bool IsIdle(const Child& child) {
  const bool is_private = child.key.kind == Kind::kText && child.key.text().starts_with('_');
  return is_private && (child.value.kind == Kind::kNone || IsEmptyContainer(child.value));
}

// Returns the state of an object that may be a module.
Value StateOf(const Object& object) {
  if (FindCallable(object.target) != KnownCallable::kGraphModule) return object.state();
  const Values arguments = ItemsOf(object.arguments);
  const auto dict = std::ranges::find(arguments, Kind::kDict, &Value::kind);
  return dict == arguments.end() ? Value() : *dict;
}

// Returns the module that torch.compile has wrapped; null if the object is not such a wrapper.
const Value* OriginalOf(const Object& object) {
  if (FindCallable(object.target) != KnownCallable::kOptimizedModule) return nullptr;
  const Values arguments = ItemsOf(object.arguments);
  return arguments.empty() || !object.states().empty() ? nullptr : &arguments[0];
}

}  // namespace

bool IsModule(const Object& object) {
  if (OriginalOf(object) != nullptr) return true;
  const Value state = StateOf(object);
  return std::ranges::all_of(kTables, [&](std::string_view table) {
    const Value* found = TableOf(state, table);
    return found != nullptr && IsPlainDict(*found);
  });
}

std::string_view ClassOfModule(const Object& object) {
  const bool is_graph = FindCallable(object.target) == KnownCallable::kGraphModule;
  return is_graph ? "torch.fx.graph_module.GraphModule" : "";
}

void AddModule(Children& children, const Object& object, Budget& budget) {
  if (const Value* original = OriginalOf(object)) {
    // All other attributes are settings of the compiler.
    children.push_back({TextOf("_orig_mod"), *original, Child::Role::kAttribute});
    return;
  }
  const Value state = StateOf(object);
  for (const std::string_view table : kTables) {
    const Interpretation members = Interpret(*TableOf(state, table), budget);
    for (const Child& child : members.children) {
      if (child.value.kind != Kind::kNone) children.push_back(child);  // None: "there is no bias".
    }
  }
  Children attributes(&budget);
  if (object.states().empty()) {
    AddPairs(attributes, ItemsOf(state), budget, Child::Role::kAttribute);
  } else {
    AddStates(attributes, object, budget);
  }
  for (const Child& child : attributes) {
    const bool is_table =
        child.key.kind == Kind::kText && std::ranges::count(kTables, child.key.text()) != 0;
    if (!is_table && !IsIdle(child)) children.push_back(child);
  }
}

}  // namespace ckptfs::torch
