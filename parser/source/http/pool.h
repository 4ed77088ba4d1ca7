// Connections that wait for the next request.

#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "parser/source/http/client.h"
#include "parser/source/http/connection.h"

namespace ckptfs::http {

// Thread-safe. Gives out the connection that was used last, so that of many few stay in use, and
// the others are closed by their servers in the end.
class Client::Pool {
 public:
  Pool(Trust trust, std::string user_agent)
      : trust_(std::move(trust)), user_agent_(std::move(user_agent)) {}

  std::unique_ptr<Connection> Take() {
    {
      const std::scoped_lock lock(mutex_);
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return std::make_unique<Connection>(trust_, user_agent_);
  }

  // Takes back a connection that nothing has gone wrong with. Others are left to their destructor.
  void Return(std::unique_ptr<Connection> connection) {
    const std::scoped_lock lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(std::move(connection));
  }

 private:
  static constexpr size_t kMostIdle = 16;

  const Trust trust_;
  const std::string user_agent_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;  // The one used last is the last.
};

}  // namespace ckptfs::http
