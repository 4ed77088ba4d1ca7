// What a distributed checkpoint has, and where: what its .metadata tells.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/dtype.h"
#include "parser/codec/pickle.h"
#include "parser/format/dcp/names.h"
#include "parser/layer/assembled.h"

namespace ckptfs::dcp {

// A run of bytes of a file.
struct Place {
  uint32_t file = 0;    // Its number in Metadata::files.
  uint64_t offset = 0;  // In bytes, as is the length.
  uint64_t length = 0;

  // What the bytes went through last when they were written: "stream.zstd/1". Mostly nothing.
  std::string_view transform = {};
};

// A tensor or a value.
struct Item {
  std::string_view name;
  std::span<const pickle::Value> path;  // Keys, outermost first; empty if there is only a name.

  // Where its chunks are, nothing where that is not told. Of a value, where its copies are.
  std::vector<std::optional<Place>> places;

  bool is_tensor = false;
  // The rest is of tensors.
  std::vector<Region> boxes;  // Its chunks: one for each of `places`.
  Dtype dtype = Dtype::kOpaque;
  std::string_view dtype_name;  // "torch.float32"
  bool requires_grad = false;
  std::vector<uint64_t> shape;
};

// All that is here points into the pickles that it was read from.
struct Metadata {
  explicit Metadata(Budget& b) : budget(b) {}

  Budget& budget;  // What is kept here is charged to it.

  std::vector<Item> items;     // In the order of the checkpoint; names are unique.
  std::string_view version;    // Empty if there is none.
  pickle::Value storage_meta;  // The attributes of who wrote it and when, a kDict or kNone.

  Names names{budget};
  Names files{budget};
  std::vector<uint32_t> item_of_name;  // Indexes of items by number of their names; or kNoItem.

  static constexpr uint32_t kNoItem = ~uint32_t{0};
};

// Adds what the pickle of a .metadata tells to `metadata`. There are several pickles where each
// process has written its own; what the first says of a value counts, and of a tensor each has a
// part. Throws Error: EBADMSG if it is none of a distributed checkpoint or contradicts another one,
// EFBIG.
void AddMetadata(const pickle::Value& root, Metadata& metadata);

}  // namespace ckptfs::dcp
