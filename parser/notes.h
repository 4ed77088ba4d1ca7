// What is told of the members of a checkpoint, whatever kind they are.

#pragma once

#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs {

// The notes of a group, a tensor, a value or a table.
std::vector<Note>& NotesOf(Content& content);

}  // namespace ckptfs
