// Values as Python prints them.

#pragma once

#include <string>

#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// An integer of any size in decimal. Precondition: the kind is kInt, kBigInt or kDecimal.
std::string Decimal(const pickle::Value& integer);

// What Python prints for `value`, shortened where it is long or deep; objects as "<module.Class>".
std::string Repr(const pickle::Value& value);

}  // namespace ckptfs::torch
