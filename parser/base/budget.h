// Limits of the memory, work and time that hostile bytes may cost.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>

// The address and thread sanitizers replace `new` and `delete` themselves: such builds count
// nothing here.
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

// One mount has one budget, which all its files share. It limits three things, each in proportion
// to the bytes that are parsed (headers, pickles, JSON; as stored, where they are compressed):
//
//   memory   taken by parsed objects. As a memory resource the budget counts what containers
//            allocate from it; Charge counts what is allocated elsewhere, before it is allocated.
//            Metering counts all allocations of a thread.
//   work     in steps of about 25 ns. Failed attempts count, and steps are never refunded.
//   time     until a deadline, if one is set. It is polled where memory and work are counted.
//
// The size that a header, a sparse file or a server claims raises no limit.
//
// Belongs to one thread, except where noted. All methods throw Error(EFBIG) that names the exceeded
// limit; Error(ETIMEDOUT) after the deadline if requests were retried (WatchRetries), because the
// server failed then.
class Budget final : public std::pmr::memory_resource {
 public:
  using Clock = std::chrono::steady_clock;

  // The budget of a mount: AddFile and Grow raise its limits.
  Budget() : Budget(kBase) {}

  // A budget of `limit` bytes.
  explicit Budget(uint64_t limit) : limit_(limit) {}

  // The budget for a file of `size` bytes, all of which are parsed.
  static Budget ForFile(uint64_t size) { return {kBase, size}; }

  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget() override = default;

  // Adds a file of the checkpoint. `stored_size` is its size on the disk or on the server, in
  // bytes: no more can be parsed. May be called by several threads at once.
  void AddFile(uint64_t stored_size, bool is_remote);

  // Raises the limits for `bytes` more that are parsed.
  void Grow(uint64_t bytes);

  // Counts `bytes` of memory. Call it before the allocation.
  void Charge(uint64_t bytes);

  // Returns charged bytes.
  void Refund(uint64_t bytes) { used_ -= bytes; }

  // Counts `steps` of work: visited objects, executed opcodes.
  void Work(uint64_t steps);

  // Counts the work of one pass over `bytes`: decoding, copying or comparing them.
  void WorkOnBytes(uint64_t bytes) { Work(bytes / kBytesPerStep); }

  // Count allocations and frees of a thread (Metering). Meter returns whether the total is within
  // the limits; if it is not, FailForAllocation throws the Error that names the limit.
  bool Meter(uint64_t bytes) noexcept;
  void Unmeter(uint64_t bytes) noexcept { metered_ -= bytes; }
  [[noreturn]] void FailForAllocation();

  // From now on, parsing may take `allowance`, and a second more for each 16 MiB that are parsed.
  void SetTime(Clock::duration allowance);

  // Sets a counter of the requests to servers that have failed. It grows in other threads.
  void WatchRetries(std::shared_ptr<const std::atomic<uint64_t>> retries);

  // Suspends the deadline until SetTime, during a prompt.
  void StopTime() { end_ = kNever; }

  // The deadline. May be called by any thread.
  Clock::time_point deadline() const;

  // Throws if the deadline has passed.
  void CheckTime() const;

  // Records that a library temporarily uses `bytes`, which count for no limit of this class.
  void Lend(uint64_t bytes);

  // Calls `grown` with the sum of the limit and the lent bytes after each considerable growth.
  void OnGrowth(std::function<void(uint64_t limit)> grown) { grown_ = std::move(grown); }

  // Whether a limit has been reached: further calls fail, too.
  bool is_spent() const { return is_spent_; }

  uint64_t limit() const { return limit_; }  // Of memory, in bytes.
  uint64_t used() const { return used_; }    // Charged bytes.
  uint64_t steps() const { return steps_; }
  uint64_t most_metered() const { return most_metered_; }  // Bytes at one time.
  uint64_t metered() const { return metered_; }            // Bytes that were not freed.

 private:
  // For small files, which may contain a compressed pickle of many times their size.
  static constexpr uint64_t kBase = uint64_t{32} << 20;
  static constexpr uint64_t kBytesPerStep = 16;
  static constexpr Clock::rep kNever = Clock::time_point::max().time_since_epoch().count();

  Budget(uint64_t base, uint64_t size) : limit_(base) {
    AddFile(size, false);
    Grow(size);
  }

  uint64_t most_steps() const;
  std::chrono::seconds time_for_parsed() const;
  void Poll();
  [[noreturn]] void FailForMemory();
  [[noreturn]] void FailForWork();

  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* pointer, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  uint64_t limit_;
  uint64_t used_ = 0;
  uint64_t metered_ = 0;
  uint64_t most_metered_ = 0;
  uint64_t steps_ = 0;
  uint64_t unpolled_ = 0;  // Steps since the time was checked.
  bool is_spent_ = false;
  uint64_t lent_ = 0;
  uint64_t reported_limit_ = 0;  // To grown_.
  std::function<void(uint64_t)> grown_;

  std::atomic<uint64_t> stored_ = 0;  // Bytes of all files.
  std::atomic<bool> is_remote_ = false;
  std::shared_ptr<const std::atomic<uint64_t>> retries_;  // Null: not watched.
  uint64_t first_retry_ = 0;
  std::atomic<uint64_t> parsed_ = 0;      // Bytes of them.
  std::atomic<Clock::rep> end_ = kNever;  // The deadline, if nothing is parsed.
  Clock::duration allowance_ = {};
};

// Whether this build counts allocations.
constexpr bool kIsMetered = CKPTFS_IS_METERED != 0;

// While it exists, all allocations of this thread with `new` count as memory and work of `budget`;
// beyond the limits they throw std::bad_alloc. This also limits memory that is not charged
// explicitly. If several are nested in one thread, the outermost counts.
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
// For functions without a budget. Throws as Budget::Work does.
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
