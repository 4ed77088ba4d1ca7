// Where the bytes of a storage are.

#pragma once

#include <cerrno>
#include <string>

#include "parser/byte_source.h"

namespace ckptfs::torch {

// The bytes of a storage, as its container has them.
struct Record {
  Extent data;
  std::string member;       // What messages and meta.json call it: "data/0".
  bool is_in_file = false;  // `data` is a range of the file, else of something decoded.
  std::string error;        // Not empty: why it cannot be read; then `data` has no source.
  int error_code = EBADMSG;
};

}  // namespace ckptfs::torch
