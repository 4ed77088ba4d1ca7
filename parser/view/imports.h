// What the pickles in a file import and call, whether or not the file is a checkpoint.

#pragma once

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
  std::string member;  // Of the archive, with the pickle: "model/data.pkl". Empty: the file itself.

  // False: the bytes may be no pickle, but a text that begins as one. It breaks off, and neither
  // PROTO nor the name of the file tells what it is.
  bool is_certain = true;
};

struct Imports {
  std::vector<Import> list;    // By member, in the order of the file, and name.
  bool is_checkpoint = false;  // In a format that is supported, or there are certainly pickles.

  // The first error of the file and its pickles. An unpickler may have run what is before it, which
  // is in the list.
  std::optional<Error> error;
};

// Reads all pickles in the file `opened`: the file itself, several one after another, members of zip and tar
// archives and of archives in them, and elements of NumPy arrays. Runs none of them. What `options`
// have for reading is used where the file must be read as a checkpoint; they have a budget.
// Throws Error if the file cannot be read.
Imports ReadImports(const ByteSourcePtr& opened, const ReadOptions& options);

}  // namespace ckptfs
