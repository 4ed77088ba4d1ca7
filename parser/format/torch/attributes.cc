#include "parser/format/torch/attributes.h"

#include <span>

#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::Value;

// Objects that we look into have a few attributes. What has more is none of them, and to go through
// all of it for everyone who shares it would take long.
constexpr size_t kMostAttributes = 256;

const Value* ValueAt(const Value& dict, std::string_view key) {
  const Value* found = nullptr;
  const std::span<const Value> pairs = ItemsOf(dict);
  if (pairs.size() > 2 * kMostAttributes) return nullptr;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i].kind == Kind::kText && pairs[i].text() == key) found = &pairs[i + 1];
  }
  return found;
}

}  // namespace

const Value* AttributeOf(const Value& state, std::string_view name) {
  if (state.kind == Kind::kDict) return ValueAt(state, name);
  if (state.kind != Kind::kTuple || ItemsOf(state).size() != 2) return nullptr;
  const Value* found = nullptr;
  for (const Value& part : ItemsOf(state)) {
    if (part.kind != Kind::kDict) continue;
    if (const Value* at = ValueAt(part, name)) found = at;
  }
  return found;
}

const Value* AttributeOfObject(const Value& object, std::string_view name) {
  if (!pickle::IsObject(object) || pickle::ObjectOf(object).states().empty()) return nullptr;
  return AttributeOf(pickle::ObjectOf(object).states().back(), name);
}

const Value* ClassOfObject(const Value& object) {
  const auto& made = pickle::ObjectOf(object);
  const auto arguments = ItemsOf(made.arguments);
  const Known known = KnownCallable(made.target);
  const bool is_first =
      (known == Known::kNewObject || known == Known::kReconstructor) && !arguments.empty();
  const Value& target = is_first ? arguments[0] : made.target;
  return target.kind == Kind::kGlobal ? &target : nullptr;
}

}  // namespace ckptfs::torch
