// The index of a sharded checkpoint of Hugging Face, which maps tensors to files:
//
//   {"metadata": {"total_size": 6538240},
//    "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}
//
// Only weight_map is used; the contents of `metadata` are arbitrary. In files of accelerate the
// whole object may be the map.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::huggingface {

// A tensor and the file that contains it.
struct Weight {
  std::string name;  // UTF-8.
  uint32_t shard = 0;
};

struct Index {
  std::vector<std::string> shards;  // Plain names of files, sorted by bytes.
  std::vector<Weight> weights;      // Sorted by bytes of their names; empty without an index.
  std::string metadata;             // JSON; may be empty.

  // Returns the position of the name in `weights`, or kNone.
  size_t Find(std::string_view name) const;
  static constexpr size_t kNone = SIZE_MAX;
};

// Parses an index. The result is charged to `budget`. Throws Error: EBADMSG if it is invalid or
// names a file outside its directory, EFBIG if it is too large.
Index ReadIndex(const ByteSource& file, Budget& budget);

}  // namespace ckptfs::huggingface
