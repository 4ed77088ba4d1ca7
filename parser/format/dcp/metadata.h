// The contents of .metadata: the items of a distributed checkpoint and their locations.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/dtype.h"
#include "parser/codec/pickle.h"
#include "parser/layer/assembled.h"

namespace ckptfs::dcp {

// Numbers texts that a pickle repeats: equal texts have the same number, from 0 on. The texts must
// outlive it. A pickle usually keeps a repeated text in one place, so texts are found by address
// first: a few bytes that name a long text again cost no comparison.
class StringTable {
 public:
  explicit StringTable(Budget& budget) : by_place_(&budget), by_text_(&budget), texts_(&budget) {}

  // Throws Error(EFBIG).
  uint32_t NumberOf(std::string_view text);

  std::string_view TextOf(uint32_t number) const { return texts_[number]; }
  size_t size() const { return texts_.size(); }

 private:
  std::pmr::unordered_map<const char*, uint32_t> by_place_;
  std::pmr::map<std::string_view, uint32_t> by_text_;
  std::pmr::vector<std::string_view> texts_;
};

// A run of bytes of a file.
struct ChunkLocation {
  uint32_t file = 0;    // Number in DcpMetadata::files.
  uint64_t offset = 0;  // In bytes, as is the length.
  uint64_t length = 0;

  // The last transform applied by the writer: "stream.zstd/1". Usually empty.
  std::string_view transform = {};
};

// A tensor or a value.
struct Item {
  std::string_view name;
  std::span<const pickle::Value> path;  // Keys, outermost first; may be empty.

  // The locations of the chunks of a tensor, or of the copies of a value; nothing where missing.
  std::vector<std::optional<ChunkLocation>> places;

  bool is_tensor = false;
  // Only for tensors:
  std::vector<Region> boxes;  // The regions of the chunks, one for each of `places`.
  Dtype dtype = Dtype::kOpaque;
  std::string_view dtype_name;  // "torch.float32"
  bool requires_grad = false;
  std::vector<uint64_t> shape;
};

// Points into the pickles that it was read from.
struct DcpMetadata {
  explicit DcpMetadata(Budget& b) : budget(b) {}

  Budget& budget;  // All of this is charged to it.

  std::vector<Item> items;     // In the order of the checkpoint; names are unique.
  std::string_view version;    // May be empty.
  pickle::Value storage_meta;  // Attributes of the writer, a kDict or kNone.

  StringTable names{budget};
  StringTable files{budget};
  std::vector<uint32_t> item_of_name;  // Indexes of items by number of their names; or kNoItem.

  static constexpr uint32_t kNoItem = ~uint32_t{0};
};

// Adds the pickle of a .metadata file to `metadata`. Where each process has written its own file,
// the first entry of a value counts, and the chunks of a tensor are merged. Throws Error: EBADMSG
// if the pickle is not that of a distributed checkpoint or contradicts another one, EFBIG.
void AddMetadata(const pickle::Value& root, DcpMetadata& metadata);

}  // namespace ckptfs::dcp
