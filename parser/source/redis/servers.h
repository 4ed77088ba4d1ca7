// The server, or the servers of a cluster, that have the keys.
//
// In a cluster each key is in one of 16384 slots, and each slot on one server. A server that is
// asked for what is elsewhere says where ("MOVED slot host:port"), which we remember; after a fault
// all that is forgotten, since another server may have taken over. All servers are trusted with the
// password as the first one is, as clients of clusters do, and over TLS each must prove who it is.
// Without TLS the password for a server on this machine, which may be the end of a tunnel, stays on
// this machine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "parser/source/http/attempts.h"
#include "parser/source/redis/connection.h"
#include "parser/source/redis/uri.h"

namespace ckptfs::redis {

// Questions that are sent without waiting for the answers to those before, and what becomes of the
// answers. Belongs to one thread.
class Dialogue {
 public:
  // About one key: so all its commands are for one server.
  struct Question {
    std::string key;
    std::vector<std::string> commands;  // As they are sent; each has one answer.
    uint64_t answer_size = 0;           // Bytes of values, about.
  };

  virtual ~Dialogue() = default;

  // How many questions there are.
  virtual size_t size() const = 0;

  // Question `i`, as it is to be asked now: after a fault it is asked again.
  virtual Question At(size_t i) const = 0;

  // Takes the answer to command `n` of question `i`, in order. `head` may be an error that does not
  // pass. Of a value the bytes are still to be read, and its end. What it throws ends the dialogue.
  virtual void Take(size_t i, size_t n, const resp::Head& head, Connection& connection) = 0;
};

// Thread-safe.
class Servers {
 public:
  Servers(Target target, http::Trust trust);

  // Asks all questions and takes all answers, in order, as often as it takes. Throws as
  // http::Attempts does.
  void Run(Dialogue& dialogue, http::Attempts& attempts, const std::stop_token& stop);

 private:
  class Leases;
  struct Progress;

  bool Attempt(Dialogue& dialogue, Progress& progress, Limits limits, const std::stop_token& stop);

  // Returns a connection that nobody uses, or a new one.
  std::unique_ptr<Connection> Take(const Address& server, Limits limits,
                                   const std::stop_token& stop);
  void Return(const Address& server, std::unique_ptr<Connection> connection);

  Address ServerOf(const std::string& key) const;

  // Remembers a server that another one has named, and that it has `slot`. Throws Error(EPROTO) if
  // they are more than a cluster may have.
  void Learn(const Address& server, std::optional<uint16_t> slot);

  // Throws Error(EACCES) if the password must not go to `server`, which another one has named.
  void RequireTrusted(const Address& server) const;
  void ForgetSlots();

  const Target target_;
  const http::Trust trust_;

  mutable std::mutex mutex_;
  std::vector<Address> known_;   // The first one is that of the URI.
  size_t first_ = 0;             // Of these, which is asked for slots that are not known.
  std::vector<uint16_t> slots_;  // Which of `known_` has it; kUnknown. Empty if none is known.
  // None is empty; of each the connection used last is last.
  std::map<Address, std::vector<std::unique_ptr<Connection>>> idle_;
  size_t idle_count_ = 0;  // In all of them.
};

}  // namespace ckptfs::redis
