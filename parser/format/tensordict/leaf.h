// The tensors of a saved TensorDict:
//
//   <key>.memmap         the elements, dense, from the first byte on; the file may be longer
//   <key>.shape.memmap   of a nested tensor: the shapes of the tensors in it, a matrix of int64;
//                        the shape of its entry is that of this matrix
//
// A tensor without elements has no file as a rule.

#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/hash.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/tensordict/directory.h"

namespace ckptfs::tensordict {

// The entry of a tensor in meta.json.
struct LeafEntry {
  std::string_view dtype;  // "torch.float32".
  std::vector<uint64_t> shape;
  std::string_view device;
  bool is_nested = false;
};

// Returns the directory of the collection `key`; null if it is missing. Some versions encode keys,
// and older ones put "a/b" into a directory "a".
std::unique_ptr<Directory> DirectoryOf(std::string_view key, const Directory& directory);

// Reads the tensor `key` into `tensor`. Sets the known properties of the tensor even if this throws
// Error.
void ReadLeaf(std::string_view key, const LeafEntry& entry, const Directory& directory,
              Budget& budget, Tensor& tensor);

// Sets the shape of `tensor` and its type to that which tensordict calls `name`. A tensor of an
// unknown type becomes `length` bytes; annotations record the stored type and shape.
void SetType(std::string_view name, const std::vector<uint64_t>& shape, uint64_t length,
             Tensor& tensor);

// The jagged tensors of a consolidated file, each of which is stored as several leaves:
//
//   <NJT_VALUES>k     the components, concatenated along one dimension
//   <NJT_OFFSETS>k    the offset of each component; the last item is the number of that dimension
//   <NJT_LENGTHS>k    the length of each component, if there are gaps between them
//
// tensordict's memmap does not support them, so the mount shows their parts, named as in a .pth,
// and the call that assembles them.
class Jagged {
 public:
  // `leaves` and what they point to must outlive this.
  Jagged(std::span<const json::Members::Member> leaves, Budget& budget);

  // Returns whether `leaf` is a part of a jagged tensor that has values and offsets.
  bool IsPart(std::string_view leaf) const;

  struct Composite {
    std::string_view key;
    std::vector<std::pair<std::string_view, json::Node>> parts;  // By their names.
    std::vector<Annotation> about;  // For the meta.json of the composite.
  };

  // Returns the jagged tensor whose values `leaf` is; nothing for any other leaf.
  std::optional<Composite> CompositeOf(std::string_view leaf) const;

 private:
  struct Parts {
    std::optional<json::Node> values;
    std::optional<json::Node> offsets;
    std::optional<json::Node> lengths;
  };

  const Parts* Find(std::string_view key) const;

  std::pmr::unordered_map<std::string_view, Parts, SecretHash> tensors_;
};

}  // namespace ckptfs::tensordict
