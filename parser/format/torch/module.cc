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

}  // namespace

bool IsModule(const Object& object) {
  const Value state = object.state();
  return std::ranges::all_of(kTables, [&](std::string_view table) {
    const Value* found = TableOf(state, table);
    return found != nullptr && IsPlainDict(*found);
  });
}

void AddModule(Children& children, const Object& object, Budget& budget) {
  for (const std::string_view table : kTables) {
    const Meaning members = Understand(*TableOf(object.state(), table), budget);
    for (const Child& child : members.children) {
      if (child.value.kind != Kind::kNone) children.push_back(child);  // None: "there is no bias".
    }
  }
  Children attributes(&budget);
  AddStates(attributes, object, budget);
  for (const Child& child : attributes) {
    const bool is_table =
        child.key.kind == Kind::kText && std::ranges::count(kTables, child.key.text()) != 0;
    if (!is_table && !IsIdle(child)) children.push_back(child);
  }
}

}  // namespace ckptfs::torch
