#include "parser/format/torch/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "parser/format/torch/children.h"
#include "parser/format/torch/module.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::Object;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

// Cut where it is longer than names are: objects by the thousand may share one.
std::string ClassName(const Value& target) {
  constexpr size_t kMost = 1024;  // Bytes, of module and name each.
  if (target.kind != Kind::kGlobal) return Repr(target);
  const Values names = ItemsOf(target);
  return fmt::format("{}.{}", names[0].text().substr(0, kMost), names[1].text().substr(0, kMost));
}

// What an object of a class that we do not know holds. The arguments of __new__ are what a tuple
// or a number of a class of its own consists of; those of a call are one attribute.
void AddObject(Meaning& meaning, const Object& object, Values arguments, bool is_new,
               Budget& budget) {
  Children& children = meaning.children;
  if (is_new) {
    AddItems(children, arguments);
  } else if (!arguments.empty()) {
    children.push_back({TextOf("args"), object.arguments, Child::Role::kAttribute});
  }
  if (const Value keywords = object.keywords(); keywords.kind == Kind::kDict) {
    AddPairs(children, ItemsOf(keywords), budget, Child::Role::kAttribute);
  }
  AddItems(children, object.items());
  AddPairs(children, object.pairs(), budget);
  AddStates(children, object, budget);

  const auto has_only = [&](Child::Role role) {
    return !children.empty() && std::ranges::count(children, role, &Child::role) ==
                                    static_cast<ptrdiff_t>(children.size());
  };
  if (has_only(Child::Role::kPair)) meaning.form = Form::kMapping;
  if (has_only(Child::Role::kItem) && arguments.empty()) meaning.form = Form::kSequence;
}

// A dict or a list that Python itself makes. Attributes come with BUILD (OrderedDict's _metadata).
void AddContainer(Meaning& meaning, const Object& object, Values arguments, Budget& budget) {
  if (meaning.form == Form::kMapping) {
    if (!arguments.empty()) AddMapping(meaning.children, arguments.back(), budget);
    AddPairs(meaning.children, object.pairs(), budget);
  } else {
    if (!arguments.empty() && IsSequence(arguments[0])) {
      AddItems(meaning.children, ItemsOf(arguments[0]));
    }
    AddItems(meaning.children, object.items());
  }
  AddStates(meaning.children, object, budget);
}

// How much an object consists of, whoever shares it.
uint64_t PartsOf(const Object& object) {
  const auto count = [](const Value& value) {
    return IsSequence(value) || value.kind == Kind::kDict ? ItemsOf(value).size() : 0;
  };
  uint64_t parts = object.items().size() + object.pairs().size() + count(object.keywords()) + 1;
  for (const Value& argument : ItemsOf(object.arguments)) parts += 1 + count(argument);
  for (const Value& state : object.states()) {
    parts += count(state);
    if (state.kind != Kind::kTuple) continue;
    for (const Value& part : ItemsOf(state)) parts += count(part);
  }
  return parts;
}

Meaning UnderstandObject(const Object& object, Budget& budget) {
  budget.Work(PartsOf(object));
  Meaning meaning{.form = Form::kObject, .type = "", .children = Children(&budget)};
  Value target = object.target;
  Values arguments = ItemsOf(object.arguments);
  Known known = KnownCallable(target);
  bool is_new = object.kind == Kind::kNew;
  if (known == Known::kReconstructor && arguments.size() == 3) {
    meaning.type = ClassName(arguments[0]);
    const Value& base = arguments[2];
    if (IsModule(object)) {
      meaning.form = Form::kModule;
      AddModule(meaning.children, object, budget);
      return meaning;
    }
    if (base.kind == Kind::kDict) AddPairs(meaning.children, ItemsOf(base), budget);
    if (IsSequence(base)) AddItems(meaning.children, ItemsOf(base));
    AddObject(meaning, object, {}, true, budget);
    return meaning;
  }
  if (known == Known::kNewObject && !arguments.empty()) {
    is_new = true;
    target = arguments[0];
    arguments = arguments.subspan(1);
    known = KnownCallable(target);
  } else if (known == Known::kNewObjectEx && arguments.size() == 3 &&
             arguments[1].kind == Kind::kTuple) {
    is_new = true;
    target = arguments[0];
    arguments = ItemsOf(arguments[1]);
    known = KnownCallable(target);
  }
  meaning.type = ClassName(target);
  switch (known) {
    case Known::kArray:  // Of objects: they are pickled one by one.
      if (const Value state = object.state(); state.kind == Kind::kTuple &&
                                              ItemsOf(state).size() == 5 &&
                                              ItemsOf(state)[4].kind == Kind::kList) {
        meaning.type = "numpy.ndarray";
        meaning.form = Form::kSequence;
        AddItems(meaning.children, ItemsOf(ItemsOf(state)[4]));
        return meaning;
      }
      break;
    case Known::kOrderedDict:
    case Known::kCounter:
      meaning.form = Form::kMapping;
      AddContainer(meaning, object, arguments, budget);
      return meaning;
    case Known::kDefaultDict:
      meaning.form = Form::kMapping;
      AddContainer(meaning, object, arguments.subspan(std::min<size_t>(1, arguments.size())),
                   budget);
      return meaning;
    case Known::kDict:
      meaning.type = "dict";
      meaning.form = Form::kMapping;
      AddContainer(meaning, object, arguments, budget);
      return meaning;
    case Known::kSet:
    case Known::kFrozenSet:
    case Known::kList:
    case Known::kTuple:
      meaning.type = meaning.type.substr(meaning.type.find('.') + 1);
      [[fallthrough]];
    case Known::kDeque:
    case Known::kSize:
      meaning.form = Form::kSequence;
      AddContainer(meaning, object, arguments, budget);
      return meaning;
    case Known::kBytes:
    case Known::kByteArray:
    case Known::kNumber:
    case Known::kComplex:
    case Known::kPrintedCall:
    case Known::kGetattr:
    case Known::kEncode:
    case Known::kPath:
    case Known::kDevice:
    case Known::kLayout:
    case Known::kBytesIO:
    case Known::kScalar:
    case Known::kNumpyDtype:
    case Known::kUninitialized:
      meaning.form = Form::kLeaf;
      return meaning;
    default:
      break;
  }
  if (IsModule(object)) {
    meaning.form = Form::kModule;
    AddModule(meaning.children, object, budget);
  } else {
    AddObject(meaning, object, arguments, is_new, budget);
  }
  return meaning;
}

}  // namespace

const Value& Unwrapped(const Value& value) {
  constexpr int kMost = 16;  // Wrappers in one another; TorchScript makes two.
  const Value* inner = &value;
  for (int i = 0; i < kMost && pickle::IsObject(*inner); ++i) {
    const Object& object = ObjectOf(*inner);
    const Values arguments = ItemsOf(object.arguments);
    if (KnownCallable(object.target) != Known::kTransparent || arguments.empty()) break;
    inner = &arguments[0];
  }
  return *inner;
}

Meaning Understand(const Value& value, Budget& budget) {
  Meaning meaning{.form = Form::kLeaf, .type = "", .children = Children(&budget)};
  switch (value.kind) {
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kSet:
    case Kind::kFrozenSet:
      meaning.form = Form::kSequence;
      meaning.type = value.kind == Kind::kTuple  ? "tuple"
                     : value.kind == Kind::kList ? "list"
                     : value.kind == Kind::kSet  ? "set"
                                                 : "frozenset";
      budget.Work(ItemsOf(value).size());
      meaning.children.reserve(ItemsOf(value).size());
      AddItems(meaning.children, ItemsOf(value));
      return meaning;
    case Kind::kDict:
      meaning.form = Form::kMapping;
      meaning.type = "dict";
      budget.Work(ItemsOf(value).size());
      AddPairs(meaning.children, ItemsOf(value), budget);
      return meaning;
    case Kind::kCall:
    case Kind::kNew:
      return UnderstandObject(ObjectOf(value), budget);
    default:
      return meaning;
  }
}

}  // namespace ckptfs::torch
