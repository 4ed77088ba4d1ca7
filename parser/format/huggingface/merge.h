// Several files as one checkpoint.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/format/common/merged_annotations.h"
#include "parser/format/huggingface/index.h"
#include "parser/io/byte_source.h"

namespace ckptfs::huggingface {

// Puts together what the files of an index have. The index decides which tensors there are, and
// from which file each comes; what it does not know is shown, too, and marked. What cannot be had
// is shown as tensors that cannot be read. Belongs to one thread.
class Merger {
 public:
  // `index` and `budget`, which what is kept is charged to, must outlive this.
  Merger(const Index& index, Budget& budget);

  // Adds the checkpoint that the file number `shard` of the index is.
  void Add(size_t shard, Checkpoint checkpoint);

  // Tells that the file number `shard` cannot be read. The message of `error` names the file.
  void AddBroken(size_t shard, const Error& error);

  // Call once, after each file has been added. Throws Error if none could be read: the first one
  // that was given.
  Checkpoint Finish();

 private:
  struct Shard {
    std::string error;        // Why it cannot be read; empty if it can.
    size_t lost = 0;          // Tensors that should be in it.
    size_t superseded = 0;    // Members that the index has in other files.
    std::string annotations;  // Members of a JSON object.
  };

  void AddMember(size_t shard, Member member);
  void AddLost();
  void TellLost();

  const Index& index_;
  Budget& budget_;
  MergedAnnotations notes_;
  std::vector<Shard> shards_;
  std::vector<bool> is_found_;  // For each tensor of the index.
  std::vector<Error> errors_;   // The first one, if there is any.
  size_t readable_ = 0;         // Files that could be read.
  Checkpoint merged_;
};

}  // namespace ckptfs::huggingface
