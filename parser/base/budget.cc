#include "parser/base/budget.h"

#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr uint64_t kMostOfLocal = uint64_t{16} << 30;
constexpr uint64_t kMostOfRemote = uint64_t{1} << 30;

// A one-byte opcode of a pickle can create a value of 16 bytes on the stack, and a copy in a
// container.
constexpr uint64_t kPerByte = 16;

// A tenth of a second, for small files.
constexpr uint64_t kBaseSteps = uint64_t{4} << 20;
constexpr uint64_t kStepsPerByte = 16;

constexpr uint64_t kBytesPerSecond = uint64_t{16} << 20;
constexpr uint64_t kStepsPerPoll = 10'000;

}  // namespace

void Budget::AddFile(uint64_t stored_size, bool is_remote) {
  uint64_t before = stored_;
  uint64_t after = 0;
  do {
    if (__builtin_add_overflow(before, stored_size, &after)) after = ~uint64_t{0};
  } while (!stored_.compare_exchange_weak(before, after));
  if (is_remote) is_remote_ = true;
}

void Budget::Grow(uint64_t bytes) {
  bytes = std::min(bytes, stored_ - std::min<uint64_t>(stored_, parsed_));
  parsed_ += bytes;
  const uint64_t most = is_remote_ ? kMostOfRemote : kMostOfLocal;
  const uint64_t room = most - std::min(limit_, most);
  limit_ += bytes > room / kPerByte ? room : bytes * kPerByte;
  if (grown_ && limit_ - reported_limit_ > kBase / 2) grown_((reported_limit_ = limit_) + lent_);
}

void Budget::Lend(uint64_t bytes) {
  lent_ = std::max(lent_, bytes);
  if (grown_) grown_(limit_ + lent_);
}

void Budget::Charge(uint64_t bytes) {
  if (bytes > limit_ - used_) FailForMemory();
  used_ += bytes;
  if (++unpolled_ >= kStepsPerPoll) Poll();
}

void Budget::Work(uint64_t steps) {
  const uint64_t most = most_steps();
  if (steps_ > most || steps > most - steps_) FailForWork();
  steps_ += steps;
  unpolled_ += steps;
  if (unpolled_ >= kStepsPerPoll) Poll();
}

bool Budget::Meter(uint64_t bytes) noexcept {
  metered_ += bytes;
  steps_ += 1 + bytes / (2 * kBytesPerStep);  // They will be written.
  // Negative if memory allocated before the metering was freed during it.
  const auto live = static_cast<int64_t>(metered_);
  if (live > static_cast<int64_t>(most_metered_)) most_metered_ = metered_;
  // Leaves room to build the error message.
  constexpr uint64_t kSlack = 65'536;
  const uint64_t slack = is_spent_ ? kSlack : 0;
  const bool is_within =
      live <= static_cast<int64_t>(limit_ + slack) && steps_ <= most_steps() + slack;
  if (!is_within) is_spent_ = true;
  return is_within;
}

void Budget::FailForAllocation() {
  if (!is_spent_) Fail(EFBIG, "out of memory while parsing");
  if (steps_ > most_steps()) FailForWork();
  FailForMemory();
}

uint64_t Budget::most_steps() const {
  return kBaseSteps + kStepsPerByte * std::min(parsed_.load(), kMostOfLocal);
}

void Budget::WatchRetries(std::shared_ptr<const std::atomic<uint64_t>> retries) {
  retries_ = std::move(retries);
  first_retry_ = *retries_;
}

void Budget::SetTime(Clock::duration allowance) {
  allowance_ = allowance;
  end_ = (Clock::now() + allowance).time_since_epoch().count();
}

std::chrono::seconds Budget::time_for_parsed() const {
  return std::chrono::seconds(std::min(parsed_.load(), kMostOfLocal) / kBytesPerSecond);
}

Budget::Clock::time_point Budget::deadline() const {
  const Clock::time_point end(Clock::duration(end_.load()));
  return end == Clock::time_point::max() ? end : end + time_for_parsed();
}

void Budget::CheckTime() const {
  if (end_ == kNever || Clock::now() < deadline()) return;
  const auto seconds =
      (std::chrono::duration_cast<std::chrono::seconds>(allowance_) + time_for_parsed()).count();
  if (retries_ && *retries_ != first_retry_) {
    Fail(ETIMEDOUT, "reading the headers timed out after {} s", seconds);
  }
  Fail(EFBIG, "parsing takes longer than {} s, the limit for a checkpoint of this size", seconds);
}

void Budget::Poll() {
  unpolled_ = 0;
  CheckTime();
}

void Budget::FailForMemory() {
  is_spent_ = true;
  Fail(EFBIG, "parsing needs more than {} MiB of memory, the limit for a file of this size",
       limit_ >> 20U);
}

void Budget::FailForWork() {
  is_spent_ = true;
  Fail(EFBIG, "parsing takes more than {} steps, the limit for a file of this size", most_steps());
}

void* Budget::do_allocate(size_t bytes, size_t alignment) {
  Charge(bytes);
  return alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__
             ? ::operator new(bytes, std::align_val_t(alignment))
             : ::operator new(bytes);
}

void Budget::do_deallocate(void* pointer, size_t bytes, size_t alignment) {
  if (alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
    ::operator delete(pointer, std::align_val_t(alignment));
  } else {
    ::operator delete(pointer);
  }
  Refund(bytes);
}

// `new` and `delete` of the whole program are replaced by malloc and free, and counted in a thread
// that is metered. The size of a block is malloc_usable_size and its header.
namespace {

constinit thread_local Budget* metered = nullptr;

#if CKPTFS_IS_METERED

constexpr size_t kHead = 16;  // Bytes of malloc for each block.

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
