// Where the bytes of one member of an archive are.

#pragma once

#include <cerrno>
#include <string>

#include "parser/io/byte_source.h"

namespace ckptfs {

// The bytes of a member, as its archive has them.
struct Record {
  Extent data;
  std::string member;       // What messages and meta.json call it: "data/0".
  bool is_in_file = false;  // `data` is a range of the file, else of something decoded.
  std::string error;        // Not empty: why it cannot be read; then `data` has no source.
  int error_code = EBADMSG;
};

}  // namespace ckptfs
