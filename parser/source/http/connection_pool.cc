#include "parser/source/http/connection_pool.h"

#include <algorithm>
#include <utility>

#include "parser/io/prefetch.h"

namespace ckptfs::http {

Lease::Lease(ConnectionPool& pool, std::unique_ptr<CurlConnection> connection, uint64_t length)
    : pool_(pool), connection_(std::move(connection)), length_(length) {
  const MutexLock lock(pool_.mutex_);
  pool_.leases_.push_back(this);
}

Lease::~Lease() {
  const MutexLock lock(pool_.mutex_);
  std::erase(pool_.leases_, this);
  if (is_kept_ && pool_.idle_.size() < ConnectionPool::kMostIdle) {
    pool_.idle_.push_back(std::move(connection_));
  }
  pool_.returned_.notify_all();
}

void Lease::Connected(std::chrono::microseconds handshake, size_t connections) {
  if (handshake < kLongRoundTrip) return;
  size_t existing = pool_.spare_.count();
  {
    const MutexLock lock(pool_.mutex_);
    existing += pool_.idle_.size() + pool_.leases_.size();
  }
  if (existing < connections) {
    connection_->ConnectMore(pool_.spare_, connections - existing, handshake);
  }
}

void Lease::ForgetSpare() { pool_.spare_.Clear(); }

std::chrono::microseconds Lease::Answered(Clock::duration connecting,
                                          std::chrono::microseconds handshake) {
  constexpr std::chrono::milliseconds kReused(1);  // More than it takes if there is a connection.
  const MutexLock lock(pool_.mutex_);
  if (connecting > kReused) {
    pool_.connecting_ = connecting;
    pool_.round_trip_ = handshake;
  }
  answered_ = Clock::now();
  return pool_.round_trip_;
}

// Counts the connections whose responses will have ended before a new connection is there, if they
// continue as fast as they have come so far. What has come in less than that time, in which a new
// connection sends its first few packets only, is no measure.
size_t ConnectionPool::CountSoonIdle(Clock::time_point now) const {
  const Clock::duration connecting = connecting_;
  return static_cast<size_t>(std::ranges::count_if(leases_, [&](const Lease* lease) {
    const uint64_t received = lease->received_;
    if (received == 0 || received > lease->length_) return false;
    const double rest =
        static_cast<double>(lease->length_ - received) / static_cast<double>(received);
    return rest * std::max(now - lease->answered_, connecting) < connecting;
  }));
}

std::unique_ptr<CurlConnection> ConnectionPool::TakeIdle() {
  constexpr std::chrono::milliseconds kMost(500);
  MutexLock lock(mutex_);
  const Clock::time_point latest =
      Clock::now() + std::min(Clock::duration(connecting_), Clock::duration(kMost));
  ++waiting_;
  while (idle_.empty() && Clock::now() < latest && waiting_ <= CountSoonIdle(Clock::now())) {
    returned_.wait_until(lock, latest);
  }
  --waiting_;
  if (idle_.empty()) return nullptr;
  auto connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

std::unique_ptr<Lease> ConnectionPool::Take(uint64_t length) {
  auto connection = TakeIdle();
  while (connection != nullptr && connection->HasUnrequested()) connection = TakeIdle();
  if (connection == nullptr) {
    connection = std::make_unique<CurlConnection>(share_, trust_, user_agent_);
    connection->Use(spare_);
  }
  return std::make_unique<Lease>(*this, std::move(connection), length);
}

void ConnectionPool::CloseIdle() {
  spare_.Clear();
  std::vector<std::unique_ptr<CurlConnection>> closed;  // After the mutex has been unlocked.
  const MutexLock lock(mutex_);
  closed.swap(idle_);
}

}  // namespace ckptfs::http
