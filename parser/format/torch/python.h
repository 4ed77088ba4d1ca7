// Interprets the objects of a pickle as Python would: containers, numbers, objects with attributes.
// The pickle machine records the calls; Interpret determines their results.

#pragma once

#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// Whether `value`, which may be null, is True.
bool IsTrue(const pickle::Value* value);

// Returns the attribute `name` of a state: a dict, or the pair (dict or None, dict of slots). Null
// if there is none. Points into the graph.
const pickle::Value* AttributeOf(const pickle::Value& state, std::string_view name);

// The same of an object; its latest state counts.
const pickle::Value* AttributeOfObject(const pickle::Value& object, std::string_view name);

// Returns the class of an object that is created by its class alone, a kGlobal; null for others.
// Points into the graph.
const pickle::Value* ClassOfObject(const pickle::Value& object);

enum class ValueKind : uint8_t {
  kLeaf,      // A number, a text, bytes, a name: no children.
  kSequence,  // A list, tuple, set or deque, or a subclass.
  kMapping,   // A dict or a subclass.
  kModule,    // An nn.Module: parameters, buffers and submodules by name, then other attributes.
  kObject,    // Anything else: constructor arguments and attributes.
};

// A child of a container or an object.
struct Child {
  enum class Role : uint8_t {
    kItem,       // Of a sequence, or an argument of __new__; `key` is its index.
    kPair,       // Of a mapping.
    kAttribute,  // `key` is its name.
  };

  pickle::Value key;
  pickle::Value value;
  Role role = Role::kItem;
};

// An interpreted value.
struct Interpretation {
  ValueKind kind = ValueKind::kLeaf;
  std::string type;                  // "list", "collections.OrderedDict", "argparse.Namespace"
  std::pmr::vector<Child> children;  // In Python's order, without duplicate keys.

  // A collection of tensordict: a group also without tensors, whose keys are not split.
  bool is_collection = false;
  Collection collection = {};
};

// Returns `value`, or the argument of a call that only records its type (TorchScript's lists and
// dicts).
const pickle::Value& Unwrapped(const pickle::Value& value);

// Interprets `value`, which must be neither a tensor nor an array. Memory is charged to `budget`.
Interpretation Interpret(const pickle::Value& value, Budget& budget);

}  // namespace ckptfs::torch
