// Files in an archive that are not checkpoints.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"

namespace ckptfs {

constexpr uint64_t kMostText = uint64_t{1} << 20;  // Bytes of a text that becomes a value.

// Returns the bytes of `record` if they are text: UTF-8 without NUL, kMostText bytes at most. They
// are charged to `budget`. Throws Error if they cannot be read.
std::optional<std::string> TextIn(const Record& record, Budget& budget);

// Returns `text` as a value: the JSON if it is an object or a list, else the text itself.
Value ValueOfText(const std::string& text, Budget& budget);

// Returns a file of unknown type: text as a value, anything else as a tensor of bytes. Charges
// `budget`. Throws Error.
Content ContentOfFile(const Record& record, Budget& budget);

}  // namespace ckptfs
