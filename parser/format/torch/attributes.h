// The attributes that BUILD gives to an object.

#pragma once

#include <string_view>

#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// Returns the attribute `name` of a state: a dict, or the pair (dict or None, dict of slots). Null
// if there is none. Points into the graph.
const pickle::Value* AttributeOf(const pickle::Value& state, std::string_view name);

// The same of an object; its latest state counts.
const pickle::Value* AttributeOfObject(const pickle::Value& object, std::string_view name);

// The class of an object that is made without a call of anything else: a kGlobal; null if it has no
// name. Points into the graph.
const pickle::Value* ClassOfObject(const pickle::Value& object);

}  // namespace ckptfs::torch
