// The tensors of a saved TensorDict:
//
//   <key>.memmap         the elements, dense, from the first byte on; the file may be longer
//   <key>.shape.memmap   of a nested tensor: the shapes of the tensors in it, a matrix of int64;
//                        the shape of its entry is that of this matrix
//
// A tensor without elements has no file as a rule.

#pragma once

#include <memory>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/tensordict/directory.h"

namespace ckptfs::tensordict {

// What an entry of meta.json says of a tensor.
struct Entry {
  std::string_view dtype;  // "torch.float32".
  std::vector<uint64_t> shape;
  std::string_view device;
  bool is_nested = false;
};

// The directory of the collection `key`; null if there is none. Versions have encoded keys or not,
// and older ones have put "a/b" into a directory "a".
std::unique_ptr<Directory> DirectoryOf(std::string_view key, const Directory& directory);

// The tensor `key`. Throws Error that says what is wrong with it, having made `tensor` as much as
// can be told of it.
void ReadLeaf(std::string_view key, const Entry& entry, const Directory& directory, Budget& budget,
              Tensor& tensor);

// Sets the type of `tensor` to the one that tensordict calls `name`, and its shape. A type that we
// do not know is one of bytes, of which there are `length`; annotations tell the rest.
void SetType(std::string_view name, const std::vector<uint64_t>& shape, uint64_t length,
             Tensor& tensor);

}  // namespace ckptfs::tensordict
