#include "parser/budget.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "parser/error.h"

namespace ckptfs {

namespace {

constexpr uint64_t kMost = uint64_t{16} << 30;

// A one-byte opcode of a pickle can make a value of 16 bytes, on the stack and once more in a
// container; a deflated pickle is larger still, and its file is given no more for that.
constexpr uint64_t kPerByte = 16;

}  // namespace

Budget Budget::ForFile(uint64_t size) {
  Budget budget(uint64_t{32} << 20);
  budget.Grow(size);
  return budget;
}

void Budget::Grow(uint64_t size) {
  const uint64_t room = kMost - std::min(limit_, kMost);
  limit_ += size > room / kPerByte ? room : size * kPerByte;
}

void Budget::Charge(uint64_t bytes) {
  if (bytes > limit_ - used_) {
    Fail(EFBIG,
         "the objects in it need more than {} MiB of memory, which is all that a file of this size "
         "may take",
         limit_ >> 20U);
  }
  used_ += bytes;
}

void Budget::Work(uint64_t steps) {
  constexpr uint64_t kBytesPerStep = 8;
  constexpr uint64_t kLeast = uint64_t{1} << 20;
  const uint64_t most = std::max(kLeast, limit_ / kBytesPerStep);
  if (steps > most - steps_) {
    Fail(EFBIG,
         "the objects in it share their parts so often that going through them takes more than {} "
         "steps, which is all that a file of this size may take",
         most);
  }
  steps_ += steps;
}

void* Budget::do_allocate(size_t bytes, size_t alignment) {
  Charge(bytes);
  return ::operator new(bytes, std::align_val_t(alignment));
}

void Budget::do_deallocate(void* pointer, size_t bytes, size_t alignment) {
  ::operator delete(pointer, std::align_val_t(alignment));
  Refund(bytes);
}

}  // namespace ckptfs
