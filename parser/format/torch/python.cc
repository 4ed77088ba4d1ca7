#include "parser/format/torch/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "parser/format/torch/repr.h"
#include "parser/format/torch/vocabulary.h"
#include "parser/secret_hash.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::Object;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;
using Children = std::pmr::vector<Child>;

Value Index(size_t i) {
  Value index;
  index.kind = Kind::kInt;
  index.integer = static_cast<int64_t>(i);
  return index;
}

Value Name(std::string_view literal) {
  Value name;
  name.kind = Kind::kText;
  name.text_data = literal.data();
  name.length = static_cast<uint32_t>(literal.size());
  return name;
}

bool IsSequence(const Value& value) {
  return value.kind == Kind::kList || value.kind == Kind::kTuple || value.kind == Kind::kSet ||
         value.kind == Kind::kFrozenSet;
}

void AddItems(Children& children, Values items) {
  for (const Value& item : items) {
    children.push_back({Index(children.size()), item, Child::Role::kItem});
  }
}

// What makes two keys of a dict one that are no texts: 1, 1.0 and True are the same key. Keys that
// Python compares by what is in them (tuples, classes) are told apart by identity: who writes a
// dict has compared them already.
std::string IdentityOf(const Value& key) {
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

// The keys of a dict that were met so far.
class Keys {
 public:
  explicit Keys(Budget& budget) : budget_(budget) {}

  // Returns where the child with the key `key` is, or, if it is new, notes that it will be at
  // `next` and returns that.
  size_t PlaceOf(const Value& key, size_t next) {
    const bool has_text = key.kind == Kind::kText || key.kind == Kind::kBytes ||
                          key.kind == Kind::kBigInt || key.kind == Kind::kDecimal;
    if (key.kind == Kind::kText && key.length <= kShort) {
      return texts_.try_emplace(key.text(), next).first->second;
    }
    // A long text may be there by reference very often, and to compare it each time takes long.
    if (has_text && key.length > kShort) {
      const auto [seen, is_new] = seen_.try_emplace(key.text_data, next);
      if (!is_new) return seen->second;
      auto& places = key.kind == Kind::kText ? texts_ : bytes_;
      return seen->second = places.try_emplace(key.text(), next).first->second;
    }
    return others_.try_emplace(std::pmr::string(IdentityOf(key), &budget_), next).first->second;
  }

 private:
  static constexpr size_t kShort = 256;  // Bytes.

  Budget& budget_;
  std::pmr::unordered_map<std::string_view, size_t, SecretHash> texts_{&budget_};  // No copies.
  std::pmr::unordered_map<std::string_view, size_t, SecretHash> bytes_{&budget_};
  std::pmr::unordered_map<const char*, size_t> seen_{&budget_};
  std::pmr::unordered_map<std::pmr::string, size_t, SecretHash> others_{&budget_};
};

// Adds the pairs of a dict. A key that is set again keeps its place and gets the later value.
void AddPairs(Children& children, Values pairs, Budget& budget,
              Child::Role role = Child::Role::kPair) {
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

// The pairs of a dict, in whatever form it is given to a constructor: a dict, or a list of pairs.
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

// The attributes that BUILD gives: a dict, or the pair (dict or None, dict of slots). Anything else
// is what only the class itself understands: one attribute, `state`.
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
    children.push_back({Name("state"), state, Child::Role::kAttribute});
    return;
  }
  for (const Value& part : ItemsOf(state)) {
    if (part.kind != Kind::kDict) continue;
    AddPairs(children, ItemsOf(part), budget, Child::Role::kAttribute);
  }
}

void AddStates(Children& children, const Object& object, Budget& budget) {
  for (const Value& state : object.states()) AddState(children, state, budget);
}

// Nothing if `state` is no dict with that attribute. Points into the pickle's graph.
const Value* AttributeOf(const Value& state, std::string_view name) {
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

bool IsModule(const Object& object) {
  const Value state = object.state();
  return std::ranges::all_of(kTables, [&](std::string_view table) {
    const Value* found = AttributeOf(state, table);
    return found != nullptr && IsPlainDict(*found);
  });
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

// Names as in state_dict(): those in the three tables are the module's own.
void AddModule(Children& children, const Object& object, Budget& budget) {
  for (const std::string_view table : kTables) {
    const Meaning members = Understand(*AttributeOf(object.state(), table), budget);
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
    children.push_back({Name("args"), object.arguments, Child::Role::kAttribute});
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
  uint64_t parts = object.items().size() + object.pairs().size() + 1;
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
