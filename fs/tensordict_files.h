// The files of tensors.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/hash_index.h"
#include "fs/tree.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// Gives tensors their inodes: tied weights are in a checkpoint twice, but in the tree once. Tensors
// with elements that are the same view of the same bytes share an inode.
class TensorFiles {
 public:
  // `builder` must outlive this object.
  TensorFiles(TreeBuilder& builder, bool has_attributes)
      : builder_(builder), has_attributes_(has_attributes) {}

  // Returns the inode of a tensor, whose extent is used up, but not its length. `view` tells its
  // shape and type, see AppendView; `key` is for the attributes. A tensor with an error gets a file
  // that cannot be read.
  uint32_t Add(Tensor& tensor, std::string_view view, std::string_view key);

  // Returns the inode of a table, whose extent is used up, but not its length.
  uint32_t Add(Table& table, std::string_view key);

  // Give attributes to a directory and to the root, if there are any: what is known about bytes.
  void DescribeDirectory(uint32_t inode, const std::vector<Annotation>& annotations,
                         std::string_view key);
  void DescribeRoot(const Checkpoint& checkpoint, std::string_view source);

 private:
  uint32_t AddNew(Tensor& tensor, std::string_view key);
  void Describe(uint32_t inode, const Tensor& tensor, std::string_view key);

  TreeBuilder& builder_;
  const bool has_attributes_;
  std::unordered_map<std::string, uint32_t> views_;   // Numbered: many tensors have few of them.
  std::vector<std::pair<uint32_t, uint32_t>> files_;  // Inode and view.
  HashIndex known_;                                   // Of files_, by what they are made of.
};

}  // namespace ckptfs
