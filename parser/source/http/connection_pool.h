// The connections of a client.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/source/curl.h"
#include "parser/source/spare_sockets.h"

namespace ckptfs::http {

class ConnectionPool;

// A connection in use. Returns it to its pool. Belongs to one thread, but for what the pool asks.
class Lease {
 public:
  using Clock = std::chrono::steady_clock;

  // `length` is how many bytes the response will have; 0 if that is not known.
  Lease(ConnectionPool& pool, std::unique_ptr<CurlConnection> connection, uint64_t length);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  CurlConnection& connection() { return *connection_; }

  // Records that there is a connection, which took `handshake` to establish, before the request is
  // sent. If that is long, begins so many that the pool has `connections`.
  void Connected(std::chrono::microseconds handshake, size_t connections);

  // Closes the connections that Connected has begun: the server sends the client elsewhere.
  void ForgetSpare();

  // Records that the response begins. It took `connecting` until its request was sent, and
  // `handshake` of that to establish a TCP connection, if it was a new one. Returns the handshake
  // of the last new connection of the pool, which takes a round trip.
  std::chrono::microseconds Answered(Clock::duration connecting,
                                     std::chrono::microseconds handshake);

  // Records that so many bytes of the response have arrived.
  void Received(uint64_t bytes) { received_ = bytes; }

  // The connection can be used again.
  void Keep() { is_kept_ = true; }

 private:
  friend class ConnectionPool;

  ConnectionPool& pool_;
  std::unique_ptr<CurlConnection> connection_;
  bool is_kept_ = false;

  const uint64_t length_;
  std::atomic<uint64_t> received_ = 0;

  // Guarded by the mutex of the pool.
  Clock::time_point answered_;
};

// Thread-safe.
class ConnectionPool {
 public:
  ConnectionPool(TrustedCertificates trust, std::string user_agent)
      : trust_(std::move(trust)), user_agent_(std::move(user_agent)) {}

  // Returns the idle connection that was used last, so that a few of them stay in use and servers
  // close the others in the end. Waits for one that will be idle before a new one would be
  // connected. Closes idle connections on which a server has sent something without a request.
  std::unique_ptr<Lease> Take(uint64_t length);

  // Closes all connections that are not leased.
  void CloseIdle();

 private:
  friend class Lease;
  using Clock = Lease::Clock;

  // Returns null if a new connection is needed.
  std::unique_ptr<CurlConnection> TakeIdle();

  size_t CountSoonIdle(Clock::time_point now) const REQUIRES(mutex_);

  static constexpr size_t kMostIdle = 64;

  const TrustedCertificates trust_;
  const std::string user_agent_;
  const CurlShare share_;  // Destroyed after the connections.
  SpareSockets spare_;     // The same.
  Mutex mutex_;
  std::condition_variable returned_;
  // The last one was used last.
  std::vector<std::unique_ptr<CurlConnection>> idle_ GUARDED_BY(mutex_);
  std::vector<const Lease*> leases_ GUARDED_BY(mutex_);
  std::chrono::microseconds round_trip_ GUARDED_BY(mutex_){0};
  size_t waiting_ GUARDED_BY(mutex_) = 0;                               // In Take.
  Clock::duration connecting_ GUARDED_BY(mutex_) = Clock::duration(0);  // Of a new connection.
};

}  // namespace ckptfs::http
