// What is told of the members of a checkpoint, whatever kind they are.

#pragma once

#include <string_view>
#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs {

// The annotations of a group, a tensor, a value or a table.
std::vector<Annotation>& AnnotationsOf(Content& content);

// The names of the annotations that SetGlobals adds.
constexpr std::string_view kGlobalsAnnotation = "globals";
constexpr std::string_view kRefusedGlobalsAnnotation = "globals_refused_by_weights_only";

// Sets the globals of `checkpoint`, which had none, and annotates it with them, unless `globals`,
// which are sorted, are none: "globals" lists all, "globals_refused_by_weights_only" the refused.
void SetGlobals(std::vector<Global> globals, Checkpoint& checkpoint);

}  // namespace ckptfs
