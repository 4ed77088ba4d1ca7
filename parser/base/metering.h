// Counting every allocation of a thread.

#pragma once

#include <cstdint>
#include <new>
#include <type_traits>

#include "parser/base/budget.h"

// The sanitizers for addresses and threads have `new` and `delete` of their own, which cannot be
// replaced: such builds count nothing here.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CKPTFS_IS_METERED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CKPTFS_IS_METERED 0
#endif
#endif
#ifndef CKPTFS_IS_METERED
#define CKPTFS_IS_METERED 1
#endif

namespace ckptfs {

// Whether this build counts allocations.
constexpr bool kIsMetered = CKPTFS_IS_METERED != 0;

// As long as it lives, all that this thread allocates with `new` (containers, texts, trees) counts
// as memory and as work of `budget`, and beyond the limits std::bad_alloc is thrown. So what no
// Charge foresees is limited, too. Of several that nest in one thread the outermost counts.
class Metering {
 public:
  explicit Metering(Budget& budget);
  Metering(const Metering&) = delete;
  Metering& operator=(const Metering&) = delete;
  ~Metering();

 private:
  const bool is_outermost_;
};

// Counts `steps` of work in the budget of the outermost Metering of this thread, if there is one.
// For functions that are too small to know a budget. Throws as Budget::Work does.
void CountWork(uint64_t steps);

// Calls `body` metered, and returns its result. Throws what `body` throws, and Error(EFBIG) that
// names the limit if it allocates too much.
template <typename Body>
std::invoke_result_t<const Body&> Metered(Budget& budget, const Body& body) {
  try {
    const Metering metering(budget);
    return body();
  } catch (const std::bad_alloc&) {
    budget.FailForAllocation();
  }
}

}  // namespace ckptfs
