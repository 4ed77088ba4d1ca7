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

// Returns the identity of a key without text: 1, 1.0 and True are the same key. Keys that Python
// compares by content (tuples, classes) are distinguished by their node: the writer of a dict has
// compared them already.
std::string IdentityOfKey(const Value& key) {
  switch (key.kind) {
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

bool HasText(const Value& key) {
  return key.kind == Kind::kText || key.kind == Kind::kBytes || key.kind == Kind::kBigInt ||
         key.kind == Kind::kDecimal;
}

// The keys of a dict so far, which are keys of `children`.
class Keys {
 public:
  // For a dict of at most `most` pairs.
  Keys(const Children& children, size_t most, Budget& budget)
      : children_(children), budget_(budget), charged_(most * HashIndex::kMostBytes) {
    budget_.Charge(charged_);
    texts_.Reset(most);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;
  ~Keys() { budget_.Refund(charged_); }

  // Returns the position of the child with `key`. That of a new key is the end of the children, to
  // which the caller adds it.
  size_t PlaceOf(const Value& key) {
    constexpr size_t kShort = 256;  // Bytes.
    const size_t next = children_.size();
    if (!HasText(key)) {
      return others_.try_emplace(std::pmr::string(IdentityOfKey(key), &budget_), next)
          .first->second;
    }
    if (key.length <= kShort) return PlaceOfText(key);
    // A long text may be referenced many times, and comparing it each time would take long.
    const auto [seen, is_new] = seen_.try_emplace(key.text_data, next);
    if (is_new) seen->second = PlaceOfText(key);
    return seen->second;
  }

 private:
  size_t PlaceOfText(const Value& key) {
    const uint64_t hash = HashOf(key.text());
    const uint32_t found = texts_.Find(hash, [&](uint32_t i) {
      const Value& other = children_[i].key;
      return other.kind == key.kind && other.text() == key.text();
    });
    if (found != HashIndex::kNone) return found;
    texts_.Insert(hash, static_cast<uint32_t>(children_.size()));
    return children_.size();
  }

  const Children& children_;
  Budget& budget_;
  const uint64_t charged_;
  HashIndex texts_;  // Of the children whose keys have text.
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
  Keys keys(children, pairs.size() / 2, budget);
  children.reserve(children.size() + pairs.size() / 2);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const size_t place = keys.PlaceOf(pairs[i]);
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
