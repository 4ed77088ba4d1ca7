// The children of containers and objects, for Interpret. Their memory is charged to `budget`.

#pragma once

#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/python.h"

namespace ckptfs::torch {

using Children = std::pmr::vector<Child>;

// Whether `value` is a list, a tuple or a set.
bool IsSequence(const pickle::Value& value);

// The name of the class of a sequence in Python: "list", "tuple", ...
std::string_view NameOfSequence(const pickle::Value& sequence);

// Returns `literal` as a value of the kind kText.
pickle::Value TextOf(std::string_view literal);

// Adds the items of a sequence. Their indexes continue those of the existing children.
void AddItems(Children& children, std::span<const pickle::Value> items);

// Adds the pairs of a dict: key, value, key, value, ... A repeated key keeps its position and gets
// the last value.
void AddPairs(Children& children, std::span<const pickle::Value> pairs, Budget& budget,
              Child::Role role = Child::Role::kPair);

// Adds the pairs of a constructor's argument: a dict, or a list of pairs.
void AddMapping(Children& children, const pickle::Value& mapping, Budget& budget);

// Adds the attributes that BUILD gave to an object: each time a dict, or the pair (dict or None,
// dict of slots). Any other state is opaque: one attribute, `state`.
void AddStates(Children& children, const pickle::Object& object, Budget& budget);

// torch.nn.Module, whatever its class: an object whose state has the tables _parameters, _buffers
// and _modules. A torch.fx.GraphModule passes such a dict to a function. The result of
// torch.compile has the original module as `_orig_mod`.

bool IsModule(const pickle::Object& object);

// Returns its class if that differs from the callable; else empty.
std::string_view ClassOfModule(const pickle::Object& object);

// Adds the content of a module by the names of state_dict(): the three tables are not levels of
// their own. Other attributes follow, except unused internal ones. Precondition: IsModule.
void AddModule(Children& children, const pickle::Object& object, Budget& budget);

}  // namespace ckptfs::torch
