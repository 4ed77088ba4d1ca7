// The tensors of safetensors files of which each tells where its own belong.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/format/dcp/metadata.h"
#include "parser/format/dcp/names.h"
#include "parser/format/dcp/sharding.h"
#include "parser/format/safetensors/header.h"
#include "parser/io/byte_source.h"

namespace ckptfs::dcp {

// Returns the member `key` of the metadata of a header; null if there is none.
const std::string* MetadataOf(const safetensors::Header& header, std::string_view key);

// The text that ReadSharding reads; null if there is none.
inline const std::string* ShardingOf(const safetensors::Header& header) {
  return MetadataOf(header, "DCP_SHARDING_INFO");
}

struct ShardFile {
  std::string name;
  ByteSourcePtr source;
  safetensors::Header header;
  bool is_sharded = false;    // If not, all of its tensors are whole.
  std::vector<Shard> shards;  // One for each entry of the header, in its order.
};

// Reads the header of a file, which may have no ShardingOf. Throws Error.
ShardFile ReadShardFile(std::string name, ByteSourcePtr source, Budget& budget);

// A tensor and where its chunks are told. It is as large as all chunks need.
struct Whole {
  struct Source {
    const ShardFile* file;
    const safetensors::Entry* entry;
  };

  Item item;
  std::vector<Source> sources;  // One for each of its boxes.
  bool is_in_one_file = false;  // A file that is not sharded has it.
  bool is_in_others = false;    // Another such file, too.
};

// All tensors of some files.
class Wholes {
 public:
  explicit Wholes(Budget& budget) : budget_(budget) {}

  // Adds the tensors of a file, which must outlive this.
  void Add(const ShardFile& file);

  const std::deque<Whole>& all() const { return wholes_; }
  const Names& files() const { return files_; }

 private:
  void AddChunk(const ShardFile& file, uint32_t number, const safetensors::Entry& entry,
                const Shard& shard);

  Budget& budget_;
  Names names_{budget_};
  Names files_{budget_};
  std::deque<Whole> wholes_;  // By number of the name.
};

}  // namespace ckptfs::dcp
