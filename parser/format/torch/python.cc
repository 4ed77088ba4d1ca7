#include "parser/format/torch/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory_resource>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "parser/base/secret_hash.h"
#include "parser/format/torch/children.h"
#include "parser/format/torch/collections.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/repr.h"

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

namespace {

using pickle::Object;
using pickle::ObjectOf;
using Values = std::span<const Value>;

// Cut where it is longer than names are: objects by the thousand may share one.
std::string ClassName(const Value& target) {
  constexpr size_t kMost = 1024;  // Bytes, of module and name each.
  if (target.kind != Kind::kGlobal) return Repr(target);
  const Values names = ItemsOf(target);
  return fmt::format("{}.{}", names[0].text().substr(0, kMost), names[1].text().substr(0, kMost));
}

bool IsPair(const Value& value) { return value.kind == Kind::kTuple && ItemsOf(value).size() == 2; }

// Whether all that an object is made of is one dict, as those are whose class is a kind of dict.
bool IsOfOneDict(const Object& object, Values arguments) {
  return arguments.size() == 1 && arguments[0].kind == Kind::kDict && object.extras == nullptr &&
         object.items().empty();
}

// Others may be there by reference very often, and to compare them each time takes long.
bool IsShortText(const Value& value) {
  constexpr uint32_t kMost = 256;  // Bytes.
  return value.kind == Kind::kText && value.length <= kMost;
}

// Whether both are the same object, or numbers or short texts that are equal.
bool IsSame(const Value& a, const Value& b) {
  constexpr uint32_t kMost = 256;  // Bytes.
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return a.integer == b.integer;
    case Kind::kFloat:
      return std::bit_cast<uint64_t>(a.real) == std::bit_cast<uint64_t>(b.real);
    case Kind::kBigInt:
    case Kind::kDecimal:
    case Kind::kText:
    case Kind::kBytes:
    case Kind::kByteArray:
      return a.text_data == b.text_data || (a.length <= kMost && a.text() == b.text());
    default:
      return a.node == b.node;
  }
}

// Adds the attributes of an object whose pairs are there from `begin` on. A dict that has its keys
// for attributes, too, may be pickled with both (EasyDict), or with itself for a state (addict):
// what is there already is not added.
void AddOtherAttributes(Children& children, size_t begin, const Object& object, Budget& budget) {
  Children attributes(&budget);
  AddStates(attributes, object, budget);
  if (attributes.empty()) return;
  std::pmr::unordered_map<std::string_view, Value, SecretHash> pairs(&budget);
  for (const Child& pair : std::span(children).subspan(begin)) {
    if (IsShortText(pair.key)) pairs.emplace(pair.key.text(), pair.value);
  }
  for (const Child& attribute : attributes) {
    const auto pair = IsShortText(attribute.key) ? pairs.find(attribute.key.text()) : pairs.end();
    const bool is_there = pair != pairs.end() && IsSame(pair->second, attribute.value);
    const bool is_itself = pickle::IsObject(attribute.value) && attribute.value.node == &object;
    if (!is_there && !is_itself) children.push_back(attribute);
  }
}

// What an object of a class that we do not know holds. The arguments of __new__ are what a tuple
// or a number of a class of its own consists of; those of a call are one attribute.
void AddObject(Meaning& meaning, const Object& object, Values arguments, bool is_new,
               Budget& budget) {
  Children& children = meaning.children;
  std::pmr::vector<Value> pairs(&budget);
  if (is_new && !object.pairs().empty() && std::ranges::all_of(arguments, IsPair)) {
    for (const Value& pair : arguments) {
      pairs.insert(pairs.end(), ItemsOf(pair).begin(), ItemsOf(pair).end());
    }
  } else if (is_new) {
    AddItems(children, arguments);
  } else if (IsOfOneDict(object, arguments)) {
    pairs.insert(pairs.end(), ItemsOf(arguments[0]).begin(), ItemsOf(arguments[0]).end());
  } else if (!arguments.empty()) {
    children.push_back({TextOf("args"), object.arguments, Child::Role::kAttribute});
  }
  if (const Value keywords = object.keywords(); keywords.kind == Kind::kDict) {
    AddPairs(children, ItemsOf(keywords), budget, Child::Role::kAttribute);
  }
  AddItems(children, object.items());
  pairs.insert(pairs.end(), object.pairs().begin(), object.pairs().end());
  const size_t before = children.size();
  AddPairs(children, pairs, budget);
  AddOtherAttributes(children, before, object, budget);

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

Meaning UnderstandObject(const Value& value, Budget& budget) {
  const Object& object = ObjectOf(value);
  budget.Work(PartsOf(object));
  Meaning meaning{.form = Form::kObject, .type = "", .children = Children(&budget)};
  if (UnderstandCollection(value, meaning, budget)) return meaning;
  meaning.form = Form::kObject;
  Value target = object.target;
  Values arguments = ItemsOf(object.arguments);
  Known known = KnownCallable(target);
  bool is_new = object.kind == Kind::kNew;
  if (known == Known::kReconstructor && arguments.size() == 3) {
    meaning.type = ClassName(arguments[0]);
    if (KnownCallable(arguments[0]) == Known::kUuid) {
      meaning.form = Form::kLeaf;
      return meaning;
    }
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
  if (IsStandard(known)) {
    meaning.form = Form::kLeaf;
    return meaning;
  }
  switch (known) {
    case Known::kArray:
    case Known::kArrayOfState:
      if (const auto array = ObjectArrayOf(value)) {
        meaning.type = "numpy.ndarray";
        if (ItemsOf(*array->shape).size() != 1) meaning.type += " of shape " + Repr(*array->shape);
        meaning.form = Form::kSequence;
        budget.Work(array->items.size());
        AddItems(meaning.children, array->items);
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
    if (const auto name = ClassOfModule(object); !name.empty()) meaning.type = name;
    AddModule(meaning.children, object, budget);
  } else {
    AddObject(meaning, object, arguments, is_new, budget);
  }
  return meaning;
}

// What `value` is only a wrapper of; null if it is none. An array of objects without dimensions is
// one object (numpy.save makes it of a dict), and so is a scalar of an array of objects.
const Value* WrappedBy(const Value& value) {
  if (!pickle::IsObject(value)) return nullptr;
  const Object& object = ObjectOf(value);
  const Values arguments = ItemsOf(object.arguments);
  switch (KnownCallable(object.target)) {
    case Known::kTransparent:
      return arguments.empty() ? nullptr : &arguments[0];
    case Known::kScalar:
      return arguments.size() == 2 && ObjectArrayOf(arguments[1]) ? &arguments[1] : nullptr;
    case Known::kArray:
    case Known::kArrayOfState: {
      const auto array = ObjectArrayOf(value);
      const bool is_single = array && array->items.size() == 1 && ItemsOf(*array->shape).empty();
      return is_single ? &array->items[0] : nullptr;
    }
    default:
      return object.states().empty() ? nullptr : DataOfCollection(value);
  }
}

}  // namespace

const Value& Unwrapped(const Value& value) {
  constexpr int kMost = 16;  // Wrappers in one another; TorchScript makes two.
  const Value* inner = &value;
  for (int i = 0; i < kMost; ++i) {
    const Value* next = WrappedBy(*inner);
    if (next == nullptr) break;
    inner = next;
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
      meaning.type = NameOfSequence(value);
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
      return UnderstandObject(value, budget);
    default:
      return meaning;
  }
}

}  // namespace ckptfs::torch
