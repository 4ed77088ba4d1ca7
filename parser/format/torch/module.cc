#include "parser/format/torch/module.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::Object;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

// Null if `state` is no dict with that attribute. Points into the pickle's graph.
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
         (pickle::IsObject(value) && KnownCallable(ObjectOf(value).target) == Known::kOrderedDict);
}

bool IsEmptyContainer(const Value& value) {
  if (value.kind == Kind::kDict || IsSequence(value)) return ItemsOf(value).empty();
  if (!pickle::IsObject(value)) return false;
  const Object& object = ObjectOf(value);
  const Known known = KnownCallable(object.target);
  const Values arguments = ItemsOf(object.arguments);
  const bool is_container = known == Known::kOrderedDict || known == Known::kSet;
  const bool is_made_empty =
      arguments.empty() || (IsSequence(arguments[0]) && ItemsOf(arguments[0]).empty());
  return is_container && is_made_empty && object.pairs().empty() && object.items().empty();
}

// Whether an attribute of a module is only its machinery: hooks that nobody has set.
bool IsIdle(const Child& child) {
  const bool is_private = child.key.kind == Kind::kText && child.key.text().starts_with('_');
  return is_private && (child.value.kind == Kind::kNone || IsEmptyContainer(child.value));
}

// The attributes of what may be a module.
Value StateOf(const Object& object) {
  if (KnownCallable(object.target) != Known::kGraphModule) return object.state();
  const Values arguments = ItemsOf(object.arguments);
  const auto dict = std::ranges::find(arguments, Kind::kDict, &Value::kind);
  return dict == arguments.end() ? Value() : *dict;
}

// The module that torch.compile has wrapped; null of anything else.
const Value* OriginalOf(const Object& object) {
  if (KnownCallable(object.target) != Known::kOptimizedModule) return nullptr;
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
  const bool is_graph = KnownCallable(object.target) == Known::kGraphModule;
  return is_graph ? "torch.fx.graph_module.GraphModule" : "";
}

void AddModule(Children& children, const Object& object, Budget& budget) {
  if (const Value* original = OriginalOf(object)) {
    // What else there is are the settings of the compiler.
    children.push_back({TextOf("_orig_mod"), *original, Child::Role::kAttribute});
    return;
  }
  const Value state = StateOf(object);
  for (const std::string_view table : kTables) {
    const Meaning members = Understand(*TableOf(state, table), budget);
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
