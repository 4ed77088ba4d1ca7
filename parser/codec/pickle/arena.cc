#include "parser/codec/pickle/arena.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace ckptfs::pickle {
namespace {

constexpr size_t kAlignment = 8;
constexpr size_t kFirstChunk = size_t{4} << 10U;
constexpr size_t kLargestChunk = size_t{64} << 10U;
constexpr size_t kLargestSmallPiece = size_t{1} << 10U;

bool IsLarge(size_t size) { return size > kLargestSmallPiece; }

size_t Aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Arena::~Arena() {
  while (blocks_ != nullptr) Free(blocks_);
}

std::byte* Arena::NewBlock(size_t size) {
  const size_t all = sizeof(Block) + size;
  auto* block = new (budget_.allocate(all, kAlignment)) Block{nullptr, blocks_, all};
  if (blocks_ != nullptr) blocks_->previous = block;
  blocks_ = block;
  return reinterpret_cast<std::byte*>(block + 1);
}

void Arena::Free(Block* block) {
  if (block->next != nullptr) block->next->previous = block->previous;
  (block->previous != nullptr ? block->previous->next : blocks_) = block->next;
  budget_.deallocate(block, block->size, kAlignment);
}

void* Arena::Take(size_t size) {
  if (IsLarge(size)) return NewBlock(size);
  const size_t needed = Aligned(size);
  if (needed > free_) {
    const size_t chunk_size = std::clamp(2 * chunk_size_, kFirstChunk, kLargestChunk);
    next_ = NewBlock(chunk_size);
    free_ = chunk_size_ = chunk_size;
  }
  free_ -= needed;
  next_ += needed;
  return next_ - needed;
}

void* Arena::Grow(void* piece, size_t old_size, size_t new_size) {
  if (piece == nullptr) return Take(new_size);
  const size_t old_needed = Aligned(old_size);
  const size_t more = Aligned(new_size) - old_needed;
  const bool is_latest = static_cast<std::byte*>(piece) + old_needed == next_;
  if (is_latest && !IsLarge(new_size) && more <= free_) {
    free_ -= more;
    next_ += more;
    return piece;
  }
  void* grown = Take(new_size);
  std::memcpy(grown, piece, old_size);
  if (IsLarge(old_size)) Free(static_cast<Block*>(piece) - 1);
  return grown;
}

}  // namespace ckptfs::pickle
