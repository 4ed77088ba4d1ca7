// The index of a sharded checkpoint of Hugging Face: which tensor lies in which file.
//
//   {"metadata": {"total_size": 6538240},
//    "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}
//
// Only weight_map counts. What `metadata` says is free: total_size may be anything. For accelerate
// the whole object may be the map.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::huggingface {

// A tensor that lies whole in one file.
struct Weight {
  std::string name;  // UTF-8.
  uint32_t shard = 0;
};

struct Index {
  std::vector<std::string> shards;  // Plain names of files, in the order of their bytes.
  std::vector<Weight> weights;      // In the order of their names' bytes; not empty.
  std::string metadata;             // JSON; empty if there is none.

  // Returns the number in `weights` of that name, or kNone.
  size_t Find(std::string_view name) const;
  static constexpr size_t kNone = SIZE_MAX;
};

// Reads an index. What the result keeps is charged to `budget`. Throws Error: EBADMSG if it is
// none, or names what is no file beside it; EFBIG if it is too large.
Index ReadIndex(const ByteSource& file, Budget& budget);

}  // namespace ckptfs::huggingface
