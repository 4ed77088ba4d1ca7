// A member of an archive: the location of its bytes, and the content that a mount shows for them: a
// checkpoint, a text, or a tensor of bytes.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// The location of the bytes of a member.
struct Record {
  Extent data;
  std::string member;          // Its name in messages and meta.json: "data/0".
  bool is_in_file = false;     // `data` is a range of the file, not of decoded data.
  std::optional<Error> error;  // Set: it is unreadable, and `data` has no source.

  // Throws `error` if it is set.
  void Check() const {
    if (error) throw Error(*error);
  }
};

// Changes the file offsets in `group` from offsets in a file of an archive to offsets in the
// archive. `group` was read from `source`, the file `record`; `path` is the name of that file in
// the archive.
void Relocate(Group& group, const ByteSourcePtr& source, const Record& record,
              std::string_view path);

constexpr uint64_t kMostText = uint64_t{1} << 20;  // Bytes of a text that becomes a value.

// Returns the bytes of `record` if they are text: UTF-8 without NUL, kMostText bytes at most. They
// are charged to `budget`. Throws Error if they cannot be read.
std::optional<std::string> TextIn(const Record& record, Budget& budget);

// Returns `text` as a value: the JSON if it is an object or a list, else the text itself.
Value ValueOfText(const std::string& text, Budget& budget);

// Returns the bytes of `record` as a tensor.
Tensor TensorOfBytes(const Record& record);

// Returns a file of unknown type: text as a value, anything else as a tensor of bytes. Charges
// `budget`. Throws Error.
Content ContentOfFile(const Record& record, Budget& budget);

}  // namespace ckptfs
