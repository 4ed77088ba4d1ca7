// Files in an archive that are no checkpoints.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"

namespace ckptfs {

constexpr uint64_t kMostText = uint64_t{1} << 20;  // Bytes of a text that becomes a value.

// The bytes of `record` if they are a text: UTF-8 without NUL, and not longer than kMostText. They
// are charged to `budget`. Throws Error if they cannot be read.
std::optional<std::string> TextIn(const Record& record, Budget& budget);

// `text` as a value: what it says if it is an object or a list in JSON, else the text itself.
Value ValueOfText(const std::string& text, Budget& budget);

// A file whose writer calls it what it likes: a text is a value, and anything else is a tensor of
// its bytes. Charges `budget` for it. Throws Error.
Content ContentOfFile(const Record& record, Budget& budget);

}  // namespace ckptfs
