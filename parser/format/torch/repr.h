// Values as Python prints them.

#pragma once

#include <optional>
#include <string>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/globals.h"

namespace ckptfs::torch {

// Whether `known` creates a value of Python's standard library that StandardText converts.
bool IsStandard(KnownCallable known);

// The text of `value`: dates, times, durations and time zones in ISO 8601 ("2020-02-29T12:00:00",
// "PT1.5S", "+01:00"; the name of a zone without a fixed offset follows in brackets), Decimal,
// Fraction and UUID as str() has them. Nothing if it is not one of these, or not as Python pickles
// them.
std::optional<std::string> StandardText(const pickle::Value& value, Budget& budget);

// An integer of any size in decimal. Precondition: the kind is kInt, kBigInt or kDecimal.
std::string Decimal(const pickle::Value& integer);

// The text that Python prints for `value`, shortened if it is long or deep; an object is
// "<module.Class>".
std::string Repr(const pickle::Value& value);

}  // namespace ckptfs::torch
