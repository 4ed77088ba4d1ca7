// TCP connections that are begun before they are needed.
//
// A program that opens a remote object fetches several ranges of it as soon as the first response
// reports its length. On a long link the connections for these are established while that
// response is on its way.

#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <vector>

#include "parser/base/fd.h"
#include "parser/base/mutex.h"

namespace ckptfs {

// Thread-safe.
class SpareSockets {
 public:
  using Clock = std::chrono::steady_clock;

  // A connection that has been begun, and when it is established at the latest: later, a new one
  // is there sooner. `socket` is invalid if no such connection exists.
  struct Spare {
    Fd socket;
    Clock::time_point latest;
  };

  // Begins `count` connections to the peer of `socket`, each of which takes about `round_trip`.
  // Those that cannot be begun are missing.
  void Connect(int socket, size_t count, Clock::duration round_trip);

  // Takes a connection to an address out.
  Spare Take(const sockaddr* address, socklen_t length);

  // Closes all connections.
  void Clear();

  // How many there are, which may be too old to be taken.
  size_t count() const;

 private:
  struct Begun {
    Spare spare;
    Clock::time_point begin;
    sockaddr_storage address;
    socklen_t length = 0;
  };

  mutable Mutex mutex_;
  std::vector<Begun> begun_ GUARDED_BY(mutex_);
};

// Waits until a connection is established, at most until `latest`. Returns whether it is.
bool AwaitConnected(int socket, SpareSockets::Clock::time_point latest);

}  // namespace ckptfs
