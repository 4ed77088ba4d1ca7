// The files of an archive that is no checkpoint by itself, but holds some: the zip archives of
// stable-baselines3 and TabNet, the tar archives of NeMo, or whatever somebody has packed.
//
//   policy.pth      a checkpoint: a directory of that name, dots and all, with what is in it
//   a/b.ckpt        the same in a directory "a"
//   a/.metadata     a checkpoint in several files: the directory that they lie in
//   data, x.yaml    a text of at most 1 MiB: a value, an object or a list if it is JSON
//
// Whatever else there is, is left out, and one warning names it.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"
#include "parser/read_options.h"

namespace ckptfs {

struct ArchivedFile {
  std::string path;  // Plain names, with '/' between them.
  Record record;  // If it is in the file, that is the archive: nothing is copied or decoded then.
  uint64_t cost = 0;  // Of reading all of it, in bytes that are inflated; 0 if it is stored.
};

// Reads what is in the files of an archive of `size` bytes. Messages call it `kind`: "zip". Throws
// Error: ENOTSUP if there is no checkpoint among them, what is wrong with the first one if none of
// them can be read, and EFBIG.
Checkpoint ReadArchivedFiles(const std::vector<ArchivedFile>& files, std::string_view kind,
                             uint64_t size, Budget& budget, const ReadOptions& options);

}  // namespace ckptfs
