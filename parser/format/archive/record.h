// The bytes of a member of an archive.

#pragma once

#include <optional>
#include <string>
#include <string_view>

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

}  // namespace ckptfs
