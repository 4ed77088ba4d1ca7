// What tensordict could not write as JSON: beside meta.json lies a pickle then.
//
//   other.pickle   of a value or of a tensorclass: {field: value}
//   pickle.pkl     of a stack of values: a list of them, of lists of them, ...
//
// Both are run symbolically, as all pickles are: nothing in them is executed.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"

namespace ckptfs::tensordict {

constexpr const char* kFieldsName = "other.pickle";
constexpr const char* kStackName = "pickle.pkl";

// Returns the fields of an other.pickle; what is no dict has none. What the result keeps is charged
// to `budget`. Throws Error.
std::vector<std::pair<std::string, Value>> ReadFields(const Record& record, Budget& budget);

// Returns the stack that a pickle.pkl is: as tensordict does it, lists of one length are stacks in
// a stack, and anything else is a value. Likewise.
std::unique_ptr<Group> ReadStack(const Record& record, Budget& budget);

}  // namespace ckptfs::tensordict
