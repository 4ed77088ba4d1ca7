// Values of Python's standard library that have one usual text: times, exact numbers, identifiers.

#pragma once

#include <optional>
#include <string>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {

// Whether StandardText is for what `known` makes.
bool IsStandard(Known known);

// The text of `value`: dates, times, durations and time zones in ISO 8601 ("2020-02-29T12:00:00",
// "PT1.5S", "+01:00"; a zone that is only named follows in brackets), Decimal, Fraction and UUID as
// str() has them. Nothing if it is none of these, or not as Python pickles them.
std::optional<std::string> StandardText(const pickle::Value& value, Budget& budget);

}  // namespace ckptfs::torch
