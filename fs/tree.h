// The directory tree that the kernel sees. Knows no tensors, no layout and no FUSE.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// A name in a directory.
struct Entry {
  std::string_view name;  // In a Tree: points into it.
  uint32_t inode = 0;
  bool is_listed = true;  // Else the name opens, but is not listed.
  mode_t type = 0;        // Of an entry without an inode, which no Tree has: S_IFREG, ...
};

using Attributes = std::vector<std::pair<std::string, std::string>>;  // Extended: name and value.

// A file or a directory.
struct Inode {
  ByteSourcePtr source;  // Of a file: where its bytes are; null for a directory.
  uint64_t offset = 0;   // Of a file: in the source. Of a directory: its first entry.
  uint64_t length = 0;   // Of a file: in bytes. Of a directory: its number of entries.
  uint32_t links = 0;    // Number of listed entries with this inode; of a directory as on ext4.
  uint32_t parent = 0;   // Of a directory; the root is its own.

  bool is_directory() const { return source == nullptr; }
};

// The inodes and entries of a mount. Built once by a TreeBuilder and then const, so any thread may
// read it. Inode numbers are indices, given in the order of building: the same checkpoint has the
// same numbers at every mount.
class Tree {
 public:
  static constexpr uint64_t kRoot = 1;          // As FUSE requires.
  static constexpr size_t kMaxFuseName = 1024;  // Bytes; FUSE_NAME_MAX of most kernels.

  // Returns the inode with that number; null if it does not exist.
  const Inode* Find(uint64_t number) const;

  // Returns the inode of the entry `name` of the directory `number`, or 0. A file is also found
  // under the names of the directories on the way to it, joined by dots: "a.b.memmap" in the
  // directory that has a/b.memmap, unless there is an entry of that name. Directories are not: the
  // kernel allows them one name. Where two files have the same joined name, the one is found whose
  // first directory has the shorter name.
  uint64_t Lookup(uint64_t number, std::string_view name) const;

  // The entries of a directory in order of their names, without "." and "..", but with those that
  // are not listed.
  std::span<const Entry> Entries(const Inode& directory) const;

  // The extended attributes of an inode; may be empty.
  const Attributes& AttributesOf(uint64_t number) const;

  size_t inode_count() const { return inodes_.size() - kRoot; }

  // Bytes of all files that are listed; those with several names count once. 2^64 - 1 if there are
  // more.
  uint64_t size() const { return size_; }

  // Bytes that the tree takes, without the sources of the files.
  uint64_t memory() const;

 private:
  friend class TreeBuilder;
  Tree() = default;

  uint64_t FindJoined(std::span<const Entry> entries, std::string_view name, int& steps) const;

  std::vector<Inode> inodes_;
  std::vector<Entry> entries_;                 // Those of one directory are consecutive.
  std::vector<std::unique_ptr<char[]>> text_;  // The memory of the names.
  std::vector<Attributes> attributes_;         // By inode; empty if no inode has any.
  uint64_t size_ = 0;
};

// Makes a Tree: first inodes, then the names of each directory, then Finish. Belongs to one thread.
class TreeBuilder {
 public:
  TreeBuilder();

  // Reserves room for about so many inodes and bytes of AddText, so that they need not be
  // copied again and again. Unused room costs addresses, not memory.
  void Reserve(size_t inodes, size_t text);

  // Adds a directory below `parent` (the root exists already) and returns its inode. It is seen
  // only once SetEntries of `parent` names it. Throws Error(EFBIG) if there are 2^31 inodes
  // already, and so do the next two.
  uint32_t AddDirectory(uint32_t parent);

  // Adds a file and returns its inode. Precondition: `data` has a source and is within it.
  uint32_t AddFile(Extent data);

  // Adds a file with these bytes, which are copied, and returns its inode. All such files share one
  // source, which does not exist before Finish.
  uint32_t AddText(std::string_view bytes);

  // Returns an inode as it is so far, valid until the next one is added.
  const Inode& Get(uint32_t inode) const { return tree_.inodes_[inode]; }

  // Sets the extended attributes of an inode.
  void SetAttributes(uint32_t inode, Attributes attributes);

  // Sets the entries of `directory`; to be called once for each directory. A file may be named more
  // than once, also in several directories: its names are hard links. A directory is listed once;
  // its unlisted names are in the same parent, because the kernel moves its dentry from one to the
  // other. Names are copied. Preconditions: names differ, have at most Tree::kMaxFuseName bytes,
  // are not empty, "." or "..", and have neither '/' nor NUL.
  void SetEntries(uint32_t directory, std::vector<Entry> entries);

  // Returns the tree; the builder is then used up. Precondition: each directory has its entries.
  Tree Finish();

 private:
  uint32_t Append(Inode inode);
  std::string_view Keep(std::string_view name);

  Tree tree_;
  std::string texts_;            // Of all files from AddText.
  ByteSourcePtr texts_to_come_;  // Stands for their source until Finish.
  size_t room_ = 0;              // Bytes left at the end of the last block of names.
};

}  // namespace ckptfs
