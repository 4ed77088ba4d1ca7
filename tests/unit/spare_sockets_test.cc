#include "parser/source/spare_sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "parser/base/fd.h"

namespace ckptfs {
namespace {

using std::chrono::seconds;

// A server on loopback, and a connection to it.
class SpareSocketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(server_.number(), address(), sizeof address_), 0);
    ASSERT_EQ(::listen(server_.number(), 16), 0);
    socklen_t length = sizeof address_;
    ASSERT_EQ(::getsockname(server_.number(), address(), &length), 0);
    ASSERT_EQ(::connect(first_.number(), address(), sizeof address_), 0);
    Fd(::accept(server_.number(), nullptr, nullptr));
  }

  sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }
  SpareSockets::Spare Take() { return spare_.Take(address(), sizeof address_); }

  sockaddr_in address_ = {};
  Fd server_{::socket(AF_INET, SOCK_STREAM, 0)};
  Fd first_{::socket(AF_INET, SOCK_STREAM, 0)};
  SpareSockets spare_;
};

TEST_F(SpareSocketsTest, ConnectsToTheSameServer) {
  spare_.Connect(first_.number(), 2, seconds(10));
  EXPECT_EQ(spare_.count(), 2U);
  for (int i = 0; i < 2; ++i) {
    const SpareSockets::Spare spare = Take();
    ASSERT_GE(spare.socket.number(), 0);
    EXPECT_TRUE(AwaitConnected(spare.socket.number(), spare.latest));
    const Fd accepted(::accept(server_.number(), nullptr, nullptr));
    EXPECT_EQ(::write(spare.socket.number(), "a", 1), 1);
    char byte = 0;
    EXPECT_EQ(::read(accepted.number(), &byte, 1), 1);
  }
  EXPECT_LT(Take().socket.number(), 0);
}

TEST_F(SpareSocketsTest, ReturnsNoConnectionToAnotherServer) {
  spare_.Connect(first_.number(), 1, seconds(10));
  sockaddr_in other = address_;
  other.sin_port ^= 1;
  EXPECT_LT(spare_.Take(reinterpret_cast<sockaddr*>(&other), sizeof other).socket.number(), 0);
  EXPECT_EQ(spare_.count(), 1U);
}

TEST_F(SpareSocketsTest, DropsAConnectionThatTheServerHasClosed) {
  spare_.Connect(first_.number(), 1, seconds(10));
  ASSERT_EQ(::close(::accept(server_.number(), nullptr, nullptr)), 0);
  EXPECT_LT(Take().socket.number(), 0);
  EXPECT_EQ(spare_.count(), 0U);
}

TEST_F(SpareSocketsTest, DropsAConnectionOnWhichTheServerReportsATimeout) {
  spare_.Connect(first_.number(), 1, seconds(10));
  const Fd accepted(::accept(server_.number(), nullptr, nullptr));
  EXPECT_EQ(::write(accepted.number(), "HTTP/1.1 408", 12), 12);
  EXPECT_LT(Take().socket.number(), 0);
}

TEST_F(SpareSocketsTest, ClosesAll) {
  spare_.Connect(first_.number(), 3, seconds(10));
  spare_.Clear();
  EXPECT_EQ(spare_.count(), 0U);
  EXPECT_LT(Take().socket.number(), 0);
}

TEST_F(SpareSocketsTest, DoesNotWaitForAConnectionThatIsRefused) {
  const Fd refused(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  server_ = Fd();
  EXPECT_LT(::connect(refused.number(), address(), sizeof address_), 0);
  EXPECT_FALSE(AwaitConnected(refused.number(), SpareSockets::Clock::now() + seconds(10)));
}

}  // namespace
}  // namespace ckptfs
