// A client of a Redis server or cluster.
//
// In a cluster each key belongs to one of 16384 slots, and each slot to one server. Another server
// redirects the client ("MOVED slot host:port"), which remembers that. After an error the client
// forgets all slots, since another server may have taken over. Like other clients, it sends the
// password to every server of the cluster; over TLS each must present a valid certificate. Without
// TLS the password for a server on this machine, which may be the end of a tunnel, is not sent to
// another machine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/source/redis/connection.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::redis {

// Commands that are sent without waiting for the replies to previous ones, and a receiver of the
// replies. Belongs to one thread.
class Pipeline {
 public:
  // One or more requests about one key, which are therefore sent to one server.
  struct Command {
    std::string key;
    std::vector<std::string> requests;  // Encoded; each has one reply.
    uint64_t reply_size = 0;            // Approximate size of the values in the replies, in bytes.
  };

  virtual ~Pipeline() = default;

  // Number of commands.
  virtual size_t size() const = 0;

  // Returns command `i`. It is sent again after a transient error.
  virtual Command At(size_t i) const = 0;

  // Receives the reply to request `n` of command `i`, in order. `head` may be an error. The
  // implementation reads the bytes of a value and its end. An exception ends the pipeline.
  virtual void OnReply(size_t i, size_t n, const resp::Head& head, Connection& connection) = 0;
};

// Thread-safe.
class ClusterClient {
 public:
  ClusterClient(Target target, TrustedCertificates trust);

  // Sends all commands and passes all replies on, in order, with retries. Throws as
  // RetryPolicy::Run does.
  void Run(Pipeline& pipeline, RetryPolicy& retry, const std::stop_token& stop);

 private:
  class Leases;
  class Attempt;
  struct Progress;

  // Returns an idle connection, or a new one.
  std::unique_ptr<Connection> Take(const Address& server, Limits limits,
                                   const std::stop_token& stop);
  void Return(const Address& server, std::unique_ptr<Connection> connection);

  Address FindServer(const std::string& key) const;

  // Records the target of a redirect, and that it has `slot`. Throws Error(EPROTO) if there are
  // more servers than a cluster may have.
  void Learn(const Address& server, std::optional<uint16_t> slot);

  // Throws Error(EACCES) if the password must not be sent to `server`, the target of a redirect.
  void RequireTrusted(const Address& server) const;
  void ForgetSlots();

  const Target target_;
  const TrustedCertificates trust_;
  const CurlShare share_;  // Destroyed after the connections.

  mutable Mutex mutex_;
  std::vector<Address> known_ GUARDED_BY(mutex_);  // The first one is that of the URI.
  size_t first_ GUARDED_BY(mutex_) = 0;            // Index of the server for unknown slots.
  std::vector<uint16_t> slots_
      GUARDED_BY(mutex_);  // Index of the server of each slot, or kUnknown. May be empty.
  // No vector is empty; the last connection of each was used last.
  std::map<Address, std::vector<std::unique_ptr<Connection>>> idle_ GUARDED_BY(mutex_);
  size_t idle_count_ GUARDED_BY(mutex_) = 0;  // In all of them.
};

}  // namespace ckptfs::redis
