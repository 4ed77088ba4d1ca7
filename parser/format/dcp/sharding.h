// Where the tensors of a safetensors file belong that PyTorch has written as one of many.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"

namespace ckptfs::dcp {

// A tensor of the file, which is a chunk of another one.
struct Shard {
  std::string key;   // What the file calls it.
  std::string name;  // Of the tensor that it is a part of: the key, if nothing is told.
  std::vector<uint64_t> offsets;  // In there.
};

// Reads the text that such a file has as DCP_SHARDING_INFO, which is JSON:
//
//   {key: {"saved_offsets": [0, 128], "logical_fqn": name}, ...}
//
// The result is in the order of the keys' bytes and charged to `budget`. Throws Error.
std::vector<Shard> ReadSharding(const std::string& text, Budget& budget);

// Returns the shard with that key; null if there is none. `shards` are from ReadSharding.
const Shard* FindShard(const std::vector<Shard>& shards, std::string_view key);

}  // namespace ckptfs::dcp
