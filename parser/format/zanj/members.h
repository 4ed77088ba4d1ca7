// The members of an object as Python's dict has them.

#pragma once

#include <memory_resource>
#include <vector>

#include "parser/budget.h"
#include "parser/codec/json_document.h"

namespace ckptfs::zanj {

// Returns the members of `object`, each key once: in the place of the first one, with the value of
// the last one. Throws Error(EFBIG).
std::pmr::vector<json::Members::Member> MembersOf(json::Node object, Budget& budget);

}  // namespace ckptfs::zanj
