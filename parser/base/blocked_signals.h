// Starting threads that handle no signals.

#pragma once

#include <pthread.h>

#include <csignal>

namespace ckptfs {

// While an object of this class exists, its thread handles no signals. Threads started meanwhile
// never do.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace ckptfs
