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

// `literal` as a str of Python.
pickle::Value TextOf(std::string_view literal);

// Adds the items of a sequence; their keys go on from those that are there.
void AddItems(Children& children, std::span<const pickle::Value> items);

// Adds the pairs of a dict: key, value, key, value, ... A key that is set again keeps its place and
// gets the later value.
void AddPairs(Children& children, std::span<const pickle::Value> pairs, Budget& budget,
              Child::Role role = Child::Role::kPair);

// Adds the pairs of a dict, in whatever form it is given to a constructor: a dict, or a list of
// pairs.
void AddMapping(Children& children, const pickle::Value& mapping, Budget& budget);

// Adds the attributes that BUILD gave to an object: each time a dict, or the pair (dict or None,
// dict of slots). Any other state is opaque: one attribute, `state`.
void AddStates(Children& children, const pickle::Object& object, Budget& budget);

// torch.nn.Module, whatever its class: an object whose state has the tables _parameters, _buffers
// and _modules. A torch.fx.GraphModule gives such a dict to a function; what torch.compile has made
// of a module has that module as `_orig_mod`.

bool IsModule(const pickle::Object& object);

// Its class, if that differs from the callable; else empty.
std::string_view ClassOfModule(const pickle::Object& object);

// Adds what is in a module, by the names that state_dict() has: those in the three tables are the
// module's own. Other attributes follow, but for the machinery that is idle. Precondition:
// IsModule.
void AddModule(Children& children, const pickle::Object& object, Budget& budget);

}  // namespace ckptfs::torch
