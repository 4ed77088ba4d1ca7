// The inodes of a mount by their numbers, from which requests of the kernel are answered. A mount
// of one checkpoint is a single Tree; a store has the trees of many, and the files beside them.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fs/tree.h"

namespace ckptfs {

constexpr double kForever = 1e9;  // Seconds.

// An inode that the kernel knows. It stays valid as long as `owner` lives.
struct Node {
  std::shared_ptr<const void> owner;  // May be null: the namespace itself owns it.
  const Inode* inode = nullptr;
  const Tree* tree = nullptr;           // That it is in; null if it is in none.
  const std::string* target = nullptr;  // Of a symbolic link; null if it is none.
  uint64_t base = 0;                    // Added to the numbers of that tree.
  timespec modified = {};               // The times of the file.
  mode_t umask = 0;                     // Taken away from its permissions.
  double seconds = kForever;            // How long the kernel may rely on its attributes.
};

// An entry that the kernel has looked up.
struct Found {
  uint64_t number = 0;  // 0: there is no such entry.
  Node node;
  double seconds = 0;  // How long the kernel may rely on the name.
};

// The entries of a directory as they were when it was opened.
struct DirectoryView {
  std::shared_ptr<const void> owner;  // May be null: the namespace itself owns the entries.
  std::span<const Entry> entries;     // An inode of 0: it has to be looked up.
  uint64_t base = 0;                  // Added to their numbers.
  uint64_t parent = 0;                // Its number; 0: unknown.
};

// Thread-safe. Methods throw Error.
class Namespace {
 public:
  struct Totals {
    uint64_t bytes = 0;
    uint64_t inodes = 0;
  };

  Namespace() = default;
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;
  virtual ~Namespace() = default;

  // Returns the inode with that number. Throws ENOENT if it does not exist. Does not block.
  virtual Node Find(uint64_t number) const = 0;

  // Finds the entry `name` of a directory, and counts a reference of the kernel to it. Returns
  // nothing, without `may_block`, if that could take longer than access to a local file.
  virtual std::optional<Found> Lookup(uint64_t directory, std::string_view name,
                                      bool may_block) = 0;

  // Returns the entries of a directory. Returns nothing, without `may_block`, if that could take
  // longer than access to a local file.
  virtual std::optional<DirectoryView> List(uint64_t directory, bool may_block) = 0;

  // Counts references of the kernel to an inode, which it has got with a listing.
  virtual void Refer(uint64_t /*number*/) {}

  // The kernel has dropped `count` references to an inode.
  virtual void Forget(uint64_t /*number*/, uint64_t /*count*/) noexcept {}

  // Whether the kernel may keep names and listings forever, and need not open or close files.
  virtual bool is_constant() const = 0;

  // Whether reads may decode, decrypt or wait for a server.
  virtual bool has_slow_reads() const = 0;

  virtual Totals totals() const = 0;
};

// The inodes of one tree, which never change.
class TreeNamespace final : public Namespace {
 public:
  // All files have the times `modified`. `tree` must outlive this.
  TreeNamespace(const Tree& tree, timespec modified, mode_t umask);

  Node Find(uint64_t number) const override;
  std::optional<Found> Lookup(uint64_t directory, std::string_view name, bool may_block) override;
  std::optional<DirectoryView> List(uint64_t directory, bool may_block) override;
  bool is_constant() const override { return true; }
  bool has_slow_reads() const override;
  Totals totals() const override { return {tree_.size(), tree_.inode_count()}; }

 private:
  const Tree& tree_;
  const timespec modified_;
  const mode_t umask_;
};

}  // namespace ckptfs
