#include "parser/codec/pickle.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#include "parser/base/error.h"
#include "parser/codec/pickle/machine.h"

namespace ckptfs::pickle {

static_assert(sizeof(Value) == 16 && sizeof(Node) == 16 && sizeof(Object) == 56,
              "a checkpoint has some ten of these for each tensor");

bool IsGlobal(const Value& value, std::string_view module, std::string_view name) {
  if (value.kind != Kind::kGlobal) return false;
  const auto items = ItemsOf(value);
  return items[0].text() == module && items[1].text() == name;
}

std::string GlobalName(const Value& value) {
  const auto items = ItemsOf(value);
  return fmt::format("{}.{}", items[0].text(), items[1].text());
}

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

Graph Load(std::span<const std::byte> pickle, Budget& budget, const Resolve& resolve) {
  // So lengths and counts in a pickle fit in 32 bits.
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  if (pickle.size() > kMost) {
    Fail(EFBIG, "pickle has {} bytes (maximum {})", pickle.size(), kMost);
  }
  return Machine(pickle, budget, resolve).Run();
}

}  // namespace ckptfs::pickle
