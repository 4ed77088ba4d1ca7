// What is told of the members of a checkpoint, whatever kind they are.

#pragma once

#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs {

// The annotations of a group, a tensor, a value or a table.
std::vector<Annotation>& AnnotationsOf(Content& content);

}  // namespace ckptfs
