// How much memory and work hostile bytes may cost.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>

namespace ckptfs {

// Counts the memory that reading one checkpoint takes and refuses more than `limit` bytes of it.
// As a memory resource it counts what containers allocate from it; Charge counts what is allocated
// elsewhere. Belongs to one thread. Throws Error(EFBIG) that says what the limit is.
//
// Bounded by the size of the file, so that a small file cannot ask for much: what a format writes
// honestly takes a few times its own size in our memory.
class Budget final : public std::pmr::memory_resource {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}

  // The budget for a file of `size` bytes.
  static Budget ForFile(uint64_t size);

  // Counts `bytes` more.
  void Charge(uint64_t bytes);

  // Allows what a file of `size` bytes more may take: for checkpoints in many files.
  void Grow(uint64_t size);

  // Counts `steps` of going through what objects consist of. Objects may share their parts, and
  // then the parts are gone through for each of them: a few bytes can ask for very many steps.
  // Throws Error(EFBIG) if they are more than honest files need, which is in proportion to the
  // limit.
  void Work(uint64_t steps);

  // Takes back what was charged.
  void Refund(uint64_t bytes) { used_ -= bytes; }

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_; }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* pointer, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  uint64_t limit_;  // In bytes.
  uint64_t used_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace ckptfs
