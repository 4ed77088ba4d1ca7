// The contents of a checkpoint as a list: each tensor, value and table with its key.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs::ckpt {

// A tensor, a value or a table.
struct Entry {
  std::string key;  // The keys from the root on, with dots between them.
  const Content* content = nullptr;
};

// Returns all entries in the order of the checkpoint, which must outlive them.
std::vector<Entry> EntriesOf(const Checkpoint& checkpoint);

struct TensorEntry {
  std::string key;
  const Tensor* tensor = nullptr;
  const Tensor* stored = nullptr;  // The same, unless Dequantize has replaced `tensor`.
  size_t tied_to =
      0;  // The index of the first tensor with the same bytes: its own if it is that one.
};

// Returns those of `entries` that are tensors.
std::vector<TensorEntry> TensorsOf(std::span<const Entry> entries);

// Throws the error of a tensor that cannot be read. Its code is never one that a command uses for
// its command line.
void CheckReadable(const Tensor& tensor, std::string_view key);

// Calls `take` with the bytes of `data`, in order, in pieces of at most 1 MiB. Throws Error if they
// cannot be read.
void ReadInOrder(const Extent& data, const std::function<void(std::span<const std::byte>)>& take);

// Whether `key` matches `pattern`, a pattern of the shell whose "*" matches dots, too. Every key
// matches an empty one.
bool Matches(const std::string& key, const std::string& pattern);

// Returns the name of the element type: "float32"; of a type that PyTorch does not have, that of
// the checkpoint.
std::string DtypeNameOf(const Tensor& tensor);

// Returns the number of elements. Of a type that is opaque, the number of bytes.
uint64_t ElementCountOf(const Tensor& tensor);

}  // namespace ckptfs::ckpt
