// A mutex whose use clang checks: with -Wthread-safety, code that uses a member without the mutex
// that guards it does not compile. The mutex of libstdc++ has no annotations for that. See
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html

#pragma once

#include <mutex>

#ifdef __clang__
#define CKPTFS_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define CKPTFS_ATTRIBUTE(attribute)
#endif

// After the name of a member: it is used only with the mutex locked.
#define GUARDED_BY(mutex) CKPTFS_ATTRIBUTE(guarded_by(mutex))

// After the parameters of a function: its caller has locked the mutex.
#define REQUIRES(mutex) CKPTFS_ATTRIBUTE(requires_capability(mutex))

namespace ckptfs {

// As std::mutex.
class CKPTFS_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() = default;

  void lock() CKPTFS_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() CKPTFS_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class MutexLock;

  std::mutex mutex_;
};

// As std::unique_lock, also for condition variables, whose predicates need REQUIRES.
class CKPTFS_ATTRIBUTE(scoped_lockable) MutexLock : public std::unique_lock<std::mutex> {
 public:
  explicit MutexLock(Mutex& mutex) CKPTFS_ATTRIBUTE(acquire_capability(mutex))
      : std::unique_lock<std::mutex>(mutex.mutex_) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() CKPTFS_ATTRIBUTE(release_capability()) = default;

  void lock() CKPTFS_ATTRIBUTE(acquire_capability()) { std::unique_lock<std::mutex>::lock(); }
  void unlock() CKPTFS_ATTRIBUTE(release_capability()) { std::unique_lock<std::mutex>::unlock(); }
};

}  // namespace ckptfs
