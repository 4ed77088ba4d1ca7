// What a file is that is no checkpoint.

#pragma once

#include <string_view>

#include "parser/format.h"

namespace ckptfs {

// Returns what a file looks like that no format has matched, as the end of a sentence, and what to
// do about it: "it is a gzip archive: unpack it first". Empty if it looks like nothing we know.
std::string_view Recognize(const Probe& probe);

}  // namespace ckptfs
