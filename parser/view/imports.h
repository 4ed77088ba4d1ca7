// The imports and calls of the pickles in a file, whether or not the file is a checkpoint.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"
#include "parser/read_options.h"

namespace ckptfs {

// A class or a function that an unpickler imports.
struct Import {
  Global global;
  std::string call;    // The first call of it: "posix.system('ls')". Empty: none, or it is allowed.
  size_t calls = 0;    // How many there are, unless it is allowed.
  std::string member;  // Of the archive, with the pickle: "model/data.pkl". Empty: the file itself.

  // False: the bytes may be a text that begins like a pickle. They are incomplete, without PROTO,
  // and the name of the file is not that of a pickle.
  bool is_certain = true;
};

struct Imports {
  std::vector<Import> list;    // By member, in the order of the file, and name.
  bool is_checkpoint = false;  // In a format that is supported, or there are certainly pickles.

  // The first error of the file and its pickles. An unpickler would run the opcodes before it,
  // whose imports are in the list.
  std::optional<Error> error;
};

// Reads all pickles in the file `opened`: the file itself, several one after another, members of
// zip and tar archives and of archives in them, and elements of NumPy arrays. Runs none of them.
// `options`, which have a budget, apply if the file must be read as a checkpoint. Throws Error if
// the file cannot be read.
Imports ReadImports(const ByteSourcePtr& opened, const ReadOptions& options);

}  // namespace ckptfs
