// Replaces `new` and `delete` of the whole program by malloc and free, which count in a thread that
// is metered. The size of a block is malloc_usable_size and its header.

#include "parser/base/metering.h"

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace ckptfs {
namespace {

constinit thread_local Budget* metered = nullptr;

#if CKPTFS_IS_METERED

constexpr size_t kHead = 16;  // Bytes, that malloc takes for each block.

void* Allocate(size_t size) {
  void* block = std::malloc(size == 0 ? 1 : size);  // NOLINT(cppcoreguidelines-no-malloc)
  if (block == nullptr) throw std::bad_alloc();
  if (metered != nullptr && !metered->Meter(::malloc_usable_size(block) + kHead)) {
    metered->Unmeter(::malloc_usable_size(block) + kHead);
    std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
    throw std::bad_alloc();
  }
  return block;
}

void Free(void* block) noexcept {
  if (metered != nullptr && block != nullptr) {
    metered->Unmeter(::malloc_usable_size(block) + kHead);
  }
  std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
}

#endif

}  // namespace

Metering::Metering(Budget& budget) : is_outermost_(metered == nullptr) {
  if (is_outermost_) metered = &budget;
}

Metering::~Metering() {
  if (is_outermost_) metered = nullptr;
}

void CountWork(uint64_t steps) {
  if (metered != nullptr) metered->Work(steps);
}

}  // namespace ckptfs

#if CKPTFS_IS_METERED
void* operator new(size_t size) { return ckptfs::Allocate(size); }
void operator delete(void* block) noexcept { ckptfs::Free(block); }
void operator delete(void* block, size_t /*size*/) noexcept { ckptfs::Free(block); }
#endif
