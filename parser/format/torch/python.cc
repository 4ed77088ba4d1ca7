#include "parser/format/torch/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory_resource>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "parser/base/hash.h"
#include "parser/format/torch/children.h"
#include "parser/format/torch/collections.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/repr.h"

namespace ckptfs::torch {
namespace {

// The interpreted objects have a few attributes. An object with more is none of them, and searching
// it for many references would be slow.
constexpr size_t kMostAttributes = 256;

const Value* ValueAt(const Value& dict, std::string_view key) {
  const Value* found = nullptr;
  const Values pairs = ItemsOf(dict);
  if (pairs.size() > 2 * kMostAttributes) return nullptr;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i].kind == Kind::kText && pairs[i].text() == key) found = &pairs[i + 1];
  }
  return found;
}

}  // namespace

bool IsTrue(const Value* value) {
  return value != nullptr && value->kind == Kind::kBool && value->integer != 0;
}

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
  if (!pickle::IsObject(object) || ObjectOf(object).states().empty()) return nullptr;
  return AttributeOf(ObjectOf(object).states().back(), name);
}

const Value* ClassOfObject(const Value& object) {
  const auto& made = ObjectOf(object);
  const auto arguments = ItemsOf(made.arguments);
  const KnownCallable known = FindCallable(made.target);
  const bool is_first =
      (known == KnownCallable::kNewObject || known == KnownCallable::kReconstructor) &&
      !arguments.empty();
  const Value& target = is_first ? arguments[0] : made.target;
  return target.kind == Kind::kGlobal ? &target : nullptr;
}

namespace {

// Overlong names are truncated, since thousands of objects may share one.
std::string ClassName(const Value& target) {
  constexpr size_t kMost = 1024;  // Bytes, of module and name each.
  if (target.kind != Kind::kGlobal) return Repr(target);
  const Values names = ItemsOf(target);
  return fmt::format("{}.{}", names[0].text().substr(0, kMost), names[1].text().substr(0, kMost));
}

bool IsPair(const Value& value) { return value.kind == Kind::kTuple && ItemsOf(value).size() == 2; }

// Whether an object consists of one dict, as those of a subclass of dict do.
bool IsOfOneDict(const Object& object, Values arguments) {
  return arguments.size() == 1 && arguments[0].kind == Kind::kDict && object.extras == nullptr &&
         object.items().empty();
}

// Long texts may be referenced many times, and comparing them each time would take long.
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

// Adds the attributes of an object whose pairs are the children from `begin` on. A dict whose keys
// are also attributes may be pickled with both (EasyDict), or with itself as its state (addict):
// duplicates are not added.
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

// Adds the content of an object of an unknown class. The arguments of __new__ are the items of a
// subclass of tuple or the value of a subclass of a number; those of a call are one attribute.
void AddObject(Interpretation& interpretation, const Object& object, Values arguments, bool is_new,
               Budget& budget) {
  Children& children = interpretation.children;
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
  if (has_only(Child::Role::kPair)) interpretation.kind = ValueKind::kMapping;
  if (has_only(Child::Role::kItem) && arguments.empty()) interpretation.kind = ValueKind::kSequence;
}

// A container of Python itself. Attributes come with BUILD (OrderedDict's _metadata).
void AddContainer(Interpretation& interpretation, const Object& object, Values arguments,
                  Budget& budget) {
  if (interpretation.kind == ValueKind::kMapping) {
    if (!arguments.empty()) AddMapping(interpretation.children, arguments.back(), budget);
    AddPairs(interpretation.children, object.pairs(), budget);
  } else {
    if (!arguments.empty() && IsSequence(arguments[0])) {
      AddItems(interpretation.children, ItemsOf(arguments[0]));
    }
    AddItems(interpretation.children, object.items());
  }
  AddStates(interpretation.children, object, budget);
}

// The number of parts of an object, shared ones included.
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

Interpretation InterpretObject(const Value& value, Budget& budget) {
  const Object& object = ObjectOf(value);
  budget.Work(PartsOf(object));
  Interpretation interpretation{
      .kind = ValueKind::kObject, .type = "", .children = Children(&budget)};
  if (InterpretCollection(value, interpretation, budget)) return interpretation;
  interpretation.kind = ValueKind::kObject;
  Value target = object.target;
  Values arguments = ItemsOf(object.arguments);
  KnownCallable known = FindCallable(target);
  bool is_new = object.kind == Kind::kNew;
  if (known == KnownCallable::kReconstructor && arguments.size() == 3) {
    interpretation.type = ClassName(arguments[0]);
    if (FindCallable(arguments[0]) == KnownCallable::kUuid) {
      interpretation.kind = ValueKind::kLeaf;
      return interpretation;
    }
    const Value& base = arguments[2];
    if (IsModule(object)) {
      interpretation.kind = ValueKind::kModule;
      AddModule(interpretation.children, object, budget);
      return interpretation;
    }
    if (base.kind == Kind::kDict) AddPairs(interpretation.children, ItemsOf(base), budget);
    if (IsSequence(base)) AddItems(interpretation.children, ItemsOf(base));
    AddObject(interpretation, object, {}, true, budget);
    return interpretation;
  }
  if (known == KnownCallable::kNewObject && !arguments.empty()) {
    is_new = true;
    target = arguments[0];
    arguments = arguments.subspan(1);
    known = FindCallable(target);
  } else if (known == KnownCallable::kNewObjectEx && arguments.size() == 3 &&
             arguments[1].kind == Kind::kTuple) {
    is_new = true;
    target = arguments[0];
    arguments = ItemsOf(arguments[1]);
    known = FindCallable(target);
  }
  interpretation.type = ClassName(target);
  if (IsStandard(known)) {
    interpretation.kind = ValueKind::kLeaf;
    return interpretation;
  }
  switch (known) {
    case KnownCallable::kArray:
    case KnownCallable::kArrayOfState:
      if (const auto array = ObjectArrayOf(value)) {
        interpretation.type = "numpy.ndarray";
        if (ItemsOf(*array->shape).size() != 1)
          interpretation.type += " of shape " + Repr(*array->shape);
        interpretation.kind = ValueKind::kSequence;
        budget.Work(array->items.size());
        AddItems(interpretation.children, array->items);
        return interpretation;
      }
      break;
    case KnownCallable::kOrderedDict:
    case KnownCallable::kCounter:
      interpretation.kind = ValueKind::kMapping;
      AddContainer(interpretation, object, arguments, budget);
      return interpretation;
    case KnownCallable::kDefaultDict:
      interpretation.kind = ValueKind::kMapping;
      AddContainer(interpretation, object, arguments.subspan(std::min<size_t>(1, arguments.size())),
                   budget);
      return interpretation;
    case KnownCallable::kDict:
      interpretation.type = "dict";
      interpretation.kind = ValueKind::kMapping;
      AddContainer(interpretation, object, arguments, budget);
      return interpretation;
    case KnownCallable::kSet:
    case KnownCallable::kFrozenSet:
    case KnownCallable::kList:
    case KnownCallable::kTuple:
      interpretation.type = interpretation.type.substr(interpretation.type.find('.') + 1);
      [[fallthrough]];
    case KnownCallable::kDeque:
    case KnownCallable::kSize:
      interpretation.kind = ValueKind::kSequence;
      AddContainer(interpretation, object, arguments, budget);
      return interpretation;
    case KnownCallable::kBytes:
    case KnownCallable::kByteArray:
    case KnownCallable::kNumber:
    case KnownCallable::kComplex:
    case KnownCallable::kPrintedCall:
    case KnownCallable::kGetattr:
    case KnownCallable::kEncode:
    case KnownCallable::kPath:
    case KnownCallable::kDevice:
    case KnownCallable::kLayout:
    case KnownCallable::kBytesIO:
    case KnownCallable::kScalar:
    case KnownCallable::kNumpyDtype:
    case KnownCallable::kUninitialized:
      interpretation.kind = ValueKind::kLeaf;
      return interpretation;
    default:
      break;
  }
  if (IsModule(object)) {
    interpretation.kind = ValueKind::kModule;
    if (const auto name = ClassOfModule(object); !name.empty()) interpretation.type = name;
    AddModule(interpretation.children, object, budget);
  } else {
    AddObject(interpretation, object, arguments, is_new, budget);
  }
  return interpretation;
}

// Returns the value that `value` wraps; null if it wraps none. An array of objects without
// dimensions is one object (numpy.save of a dict), and so is a scalar of an array of objects.
const Value* WrappedBy(const Value& value) {
  if (!pickle::IsObject(value)) return nullptr;
  const Object& object = ObjectOf(value);
  const Values arguments = ItemsOf(object.arguments);
  switch (FindCallable(object.target)) {
    case KnownCallable::kTransparent:
      return arguments.empty() ? nullptr : &arguments[0];
    case KnownCallable::kScalar:
      return arguments.size() == 2 && ObjectArrayOf(arguments[1]) ? &arguments[1] : nullptr;
    case KnownCallable::kArray:
    case KnownCallable::kArrayOfState: {
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
  constexpr int kMost = 16;  // Nested wrappers; TorchScript writes two.
  const Value* inner = &value;
  for (int i = 0; i < kMost; ++i) {
    const Value* next = WrappedBy(*inner);
    if (next == nullptr) break;
    inner = next;
  }
  return *inner;
}

Interpretation Interpret(const Value& value, Budget& budget) {
  Interpretation interpretation{
      .kind = ValueKind::kLeaf, .type = "", .children = Children(&budget)};
  switch (value.kind) {
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kSet:
    case Kind::kFrozenSet:
      interpretation.kind = ValueKind::kSequence;
      interpretation.type = NameOfSequence(value);
      budget.Work(ItemsOf(value).size());
      interpretation.children.reserve(ItemsOf(value).size());
      AddItems(interpretation.children, ItemsOf(value));
      return interpretation;
    case Kind::kDict:
      interpretation.kind = ValueKind::kMapping;
      interpretation.type = "dict";
      budget.Work(ItemsOf(value).size());
      AddPairs(interpretation.children, ItemsOf(value), budget);
      return interpretation;
    case Kind::kCall:
    case Kind::kNew:
      return InterpretObject(value, budget);
    default:
      return interpretation;
  }
}

}  // namespace ckptfs::torch
