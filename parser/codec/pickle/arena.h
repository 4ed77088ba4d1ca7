// Memory for what lives and dies together.

#pragma once

#include <cstddef>

#include "parser/base/budget.h"

namespace ckptfs::pickle {

// Hands out pieces of memory that all end with it. Small pieces are cut from chunks; a large one
// has a block of its own, so that it can be given back when it is outgrown. Everything is charged
// to a Budget, which must outlive the arena. Pieces are aligned for pointers and numbers of 8
// bytes, and no destructor of what is put into them is ever run.
class Arena {
 public:
  explicit Arena(Budget& budget) : budget_(budget) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns a piece of `size` bytes. Throws Error(EFBIG) if the budget is used up.
  void* Take(size_t size);

  // Returns a piece of `new_size` bytes that begins with the `old_size` bytes of `piece`, which
  // is gone; null is a piece of no bytes. Costs no copy for the latest small piece.
  void* Grow(void* piece, size_t old_size, size_t new_size);

 private:
  // A block that is charged to the budget: this head, then the memory.
  struct Block {
    Block* previous;
    Block* next;
    size_t size;  // Of all, in bytes.
  };

  // Returns the memory of a new block.
  std::byte* NewBlock(size_t size);
  void Free(Block* block);

  Budget& budget_;
  Block* blocks_ = nullptr;    // A list of all.
  std::byte* next_ = nullptr;  // The free part of the current chunk.
  size_t free_ = 0;            // Its size.
  size_t chunk_size_ = 0;      // Of the current chunk.
};

}  // namespace ckptfs::pickle
