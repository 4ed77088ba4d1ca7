// The files of tensors, and the entries of their directories.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fs/tree.h"
#include "parser/base/hash.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// Assigns inodes to tensors: tied weights are in a checkpoint twice, but in the tree once. Tensors
// with elements that are the same view of the same bytes share an inode.
class TensorFiles {
 public:
  // `builder` must outlive this object.
  TensorFiles(TreeBuilder& builder, bool has_attributes)
      : builder_(builder), has_attributes_(has_attributes) {}

  // Returns the inode of a tensor; consumes its extent, but not the length. `view` is the text of
  // AppendView; `key` is for the attributes. A tensor with an error gets a file that cannot be
  // read.
  uint32_t Add(Tensor& tensor, std::string_view view, std::string_view key);

  // Returns the inode of a table; consumes its extent, but not the length.
  uint32_t Add(Table& table, std::string_view key);

  // Set the attributes of a directory and of the root, if enabled: properties of bytes.
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
  HashIndex known_;                                   // Of files_, by their content.
};

// The entries of one directory. Keys must be those that Rename returned. Keeps its memory from one
// directory to the next.
class DirectoryEntries {
 public:
  void Clear();

  // Adds an entry. Returns its name, which is valid until something is added.
  std::string_view Add(std::string_view name, uint32_t inode);

  // Adds the file of a key. Returns its name as Add does.
  std::string_view AddFile(std::string_view key, std::string_view suffix, uint32_t inode);

  // Adds the directory of a key. Returns its name as Add does.
  std::string_view AddDirectory(std::string_view key, uint32_t inode);

  // Adds the file with the shapes of the components of the tensor `key`. If a tensor "<key>.shape"
  // or a directory has that name, tensordict finds that instead.
  void AddSizes(std::string_view key, uint32_t inode);

  // Adds a file over which others of its name take precedence.
  void AddBeside(std::string name, uint32_t inode) { beside_.emplace_back(std::move(name), inode); }

  // The names that have been added, including second names and files beside.
  std::unordered_set<std::string, SecretHash> Taken() const;

  // Sets the entries of `directory`: these, the second names, which are not listed, and `others`,
  // whose names cannot occur here. A first name takes precedence over a second one: "a/b" is
  // a%2Fb.memmap, "a%2Fb" is not.
  void SetEntries(TreeBuilder& builder, uint32_t directory, std::vector<Entry> others = {});

 private:
  struct Piece {
    size_t end = 0;  // In text_; it begins where the one before ends.
    uint32_t inode = 0;
  };

  std::string_view End(size_t size, uint32_t inode);
  void AddSecondNames(std::string_view key, std::string_view listed, std::string_view suffix,
                      uint32_t inode);

  std::string text_;
  std::vector<Piece> names_;
  std::vector<std::pair<std::string, uint32_t>> second_names_;
  std::vector<std::pair<std::string, uint32_t>> beside_;  // Files of what a key has beside its own.
};

}  // namespace ckptfs
