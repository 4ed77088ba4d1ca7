#include "parser/source/http/connection_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

namespace ckptfs::http {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kLength = 1000;

// Connections that connect to nothing.
class ConnectionPoolTest : public ::testing::Test {
 protected:
  // Returns a lease whose response has arrived up to `received`; connecting took `connecting`.
  std::unique_ptr<Lease> Begin(uint64_t received, milliseconds connecting) {
    auto lease = pool_.Take(kLength);
    lease->Answered(connecting, connecting);
    lease->Received(received);
    return lease;
  }

  // Ends a lease soon.
  static std::jthread EndLater(std::unique_ptr<Lease> lease) {
    return std::jthread([lease = std::move(lease)]() mutable {
      std::this_thread::sleep_for(milliseconds(20));
      lease->Keep();
      lease.reset();
    });
  }

  ConnectionPool pool_{{}, "test"};
};

TEST_F(ConnectionPoolTest, LeasesTheConnectionThatWasUsedLast) {
  auto first = pool_.Take(kLength);
  auto second = pool_.Take(kLength);
  const CurlConnection* const last = &first->connection();
  second->Keep();
  second.reset();
  first->Keep();
  first.reset();
  EXPECT_EQ(&pool_.Take(kLength)->connection(), last);
}

TEST_F(ConnectionPoolTest, WaitsForAConnectionThatIsSoonIdle) {
  auto lease = Begin(kLength - 1, std::chrono::seconds(60));
  const CurlConnection* const used = &lease->connection();
  const std::jthread end = EndLater(std::move(lease));
  EXPECT_EQ(&pool_.Take(kLength)->connection(), used);
}

TEST_F(ConnectionPoolTest, DoesNotWaitIfANewConnectionIsThereSooner) {
  const auto long_response = Begin(kLength / 3, milliseconds(300));
  const auto begin = std::chrono::steady_clock::now();
  const auto lease = pool_.Take(kLength);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(250));
}

TEST_F(ConnectionPoolTest, OneWaitsForEachConnection) {
  auto lease = Begin(kLength - 1, milliseconds(400));
  const auto begin = std::chrono::steady_clock::now();
  std::jthread waiter([this] { pool_.Take(kLength); });
  std::this_thread::sleep_for(milliseconds(50));
  pool_.Take(kLength);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(350));
}

TEST_F(ConnectionPoolTest, WaitsNoLongerForAConnectionThatBreaks) {
  auto lease = Begin(kLength - 1, milliseconds(400));
  const auto begin = std::chrono::steady_clock::now();
  std::jthread end([lease = std::move(lease)]() mutable {
    std::this_thread::sleep_for(milliseconds(20));
    lease.reset();
  });
  pool_.Take(kLength);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(350));
}

}  // namespace
}  // namespace ckptfs::http
