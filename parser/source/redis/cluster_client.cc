#include "parser/source/redis/cluster_client.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <limits>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/http/url.h"
#include "parser/source/redis/connection.h"

namespace ckptfs::redis {

namespace {

constexpr uint16_t kUnknown = std::numeric_limits<uint16_t>::max();
constexpr size_t kMostServers = 1000;  // As in the specification of Redis clusters.

// Connections: idle ones to one server, idle ones to all servers, and those of one attempt. The
// number of servers is not trusted: the cluster itself names them.
constexpr size_t kMostIdle = 16;
constexpr size_t kMostIdleInAll = 64;
constexpr size_t kMostLeases = 32;

// Commands, and bytes of their requests and replies, before the first reply is read.
constexpr size_t kMostPending = 1000;
constexpr uint64_t kMostBytes = uint64_t{4} << 20U;

}  // namespace

// Progress of a pipeline.
struct ClusterClient::Progress {
  size_t next = 0;             // The first command without a reply.
  std::optional<Address> ask;  // Server for this command only ("ASK").
};

// The connections of one attempt, one to each server. Those that are not returned are closed.
class ClusterClient::Leases {
 public:
  Leases(ClusterClient& client, Limits limits, const std::stop_token& stop)
      : client_(client), limits_(limits), stop_(stop) {}

  // Whether there is a connection to `server`, or another one is permitted.
  bool HasRoomFor(const Address& server) const {
    return leases_.size() < kMostLeases || leases_.contains(server);
  }

  // Buffers the requests of `command`; the next Flush sends them to `server`.
  Connection& Write(const Address& server, const Pipeline::Command& command, bool is_once) {
    Lease& lease = To(server);
    for (const std::string& request : command.requests) {
      if (is_once) resp::AppendCommand({"ASKING"}, lease.unsent);
      lease.unsent += request;
    }
    return *lease.connection;
  }

  void Flush() {
    for (auto& [server, lease] : leases_) {
      lease.connection->Send(lease.unsent);
      lease.unsent.clear();
    }
  }

  // Returns all connections to the client. Precondition: all replies have been read.
  void Return() {
    for (auto& [server, lease] : leases_) {
      lease.end.reset();
      client_.Return(server, std::move(lease.connection));
    }
    leases_.clear();
  }

 private:
  struct ShutDown {
    Connection* connection;
    void operator()() const { connection->ShutDown(); }
  };

  struct Lease {
    std::unique_ptr<Connection> connection;
    std::unique_ptr<std::stop_callback<ShutDown>> end;  // Goes before the connection.
    std::string unsent;
  };

  Lease& To(const Address& server) {
    Lease& lease = leases_[server];
    if (lease.connection == nullptr) {
      lease.connection = client_.Take(server, limits_, stop_);
      lease.end =
          std::make_unique<std::stop_callback<ShutDown>>(stop_, ShutDown{lease.connection.get()});
    }
    return lease;
  }

  ClusterClient& client_;
  const Limits limits_;
  const std::stop_token& stop_;
  std::map<Address, Lease> leases_;
};

// Sends the commands of a pipeline and receives their replies, until all are there or a server
// redirects one of them.
class ClusterClient::Attempt {
 public:
  // All of these must outlive this.
  Attempt(ClusterClient& client, Pipeline& pipeline, Progress& progress, Limits limits,
          const std::stop_token& stop)
      : client_(client), pipeline_(pipeline), progress_(progress), leases_(client, limits, stop) {}

  // Returns whether all replies have been received.
  bool Run() {
    for (size_t next = progress_.next; progress_.next < pipeline_.size();) {
      while (!is_redirected_ && next < pipeline_.size() && pending_.size() < kMostPending &&
             bytes_ < kMostBytes && Send(next)) {
        ++next;
      }
      if (pending_.empty()) {
        if (is_redirected_) break;
        leases_.Return();  // Makes room for a connection to the server of the next command.
        continue;
      }
      leases_.Flush();
      const Pending command = std::move(pending_.front());
      pending_.pop_front();
      bytes_ -= command.bytes;
      if (!is_redirected_) progress_.ask.reset();
      Receive(command, progress_.next);
      if (!is_redirected_) ++progress_.next;
    }
    leases_.Return();
    return !is_redirected_;
  }

 private:
  // A command that has been sent.
  struct Pending {
    Connection* connection;
    Address server;
    bool is_once;
    size_t replies;
    uint64_t bytes;
  };

  // Returns false if the attempt may not have another connection.
  bool Send(size_t i) {
    const Pipeline::Command command = pipeline_.At(i);
    const bool is_once = i == progress_.next && progress_.ask.has_value();
    const Address server = is_once ? *progress_.ask : client_.FindServer(command.key);
    if (!leases_.HasRoomFor(server)) return false;
    Connection& connection = leases_.Write(server, command, is_once);
    uint64_t bytes = command.reply_size;
    for (const std::string& request : command.requests) bytes += request.size();
    pending_.push_back({&connection, server, is_once, command.requests.size(), bytes});
    bytes_ += bytes;
    return true;
  }

  // Receives the replies to command `i`. After a redirect the replies to all pending commands are
  // discarded: they may be redirects, too.
  void Receive(const Pending& command, size_t i) {
    for (size_t n = 0; n < command.replies; ++n) {
      if (command.is_once) ThrowIfError(command.connection->ReadHead());
      const resp::Head head = command.connection->ReadHead();
      const auto redirect =
          head.kind == resp::Head::Kind::kError ? resp::ReadRedirect(head.text) : std::nullopt;
      if (redirect) {
        Follow(*redirect, command, head.text);
      } else if (is_redirected_) {
        // The reply to STRLEN is a number, not a value of that length.
        if (head.kind == resp::Head::Kind::kValue &&
            head.number > static_cast<int64_t>(kLargestRange)) {
          Fail(EPROTO, "reply too long: {} bytes", head.number);
        }
        command.connection->Skip(head);
      } else {
        pipeline_.OnReply(i, n, head, *command.connection);
      }
    }
  }

  void Follow(const resp::Redirect& redirect, const Pending& command, std::string_view text) {
    const Address target{redirect.host.empty() ? command.server.host : redirect.host,
                         redirect.port};
    if (!IsHost(target.host)) Fail(EPROTO, "invalid redirect {}", Quoted(text));
    client_.RequireTrusted(target);
    client_.Learn(target, redirect.is_once ? std::nullopt : std::optional(redirect.slot));
    if (!is_redirected_ && redirect.is_once) progress_.ask = target;
    is_redirected_ = true;
  }

  ClusterClient& client_;
  Pipeline& pipeline_;
  Progress& progress_;
  Leases leases_;
  std::deque<Pending> pending_;
  uint64_t bytes_ = 0;  // Of the pending commands.
  bool is_redirected_ = false;
};

ClusterClient::ClusterClient(Target target, TrustedCertificates trust)
    : target_(std::move(target)), trust_(std::move(trust)), known_({target_.server}) {}

void ClusterClient::Run(Pipeline& pipeline, RetryPolicy& retry, const std::stop_token& stop) {
  constexpr int kMostWithoutProgress = 8;
  Progress progress;
  const auto run = [&] {
    const TimeLimits allowed = retry.Limits(kMostBytes);
    const Limits limits{.connect = allowed.connect,
                        .stall = allowed.first_byte,
                        .deadline = std::chrono::steady_clock::now() + allowed.deadline};
    int without_progress = 0;
    while (true) {
      const size_t before = progress.next;
      if (Attempt(*this, pipeline, progress, limits, stop).Run()) return true;
      without_progress = progress.next == before ? without_progress + 1 : 0;
      if (without_progress == kMostWithoutProgress) {
        throw TransientError(EREMOTEIO, "too many redirects between the servers of the cluster");
      }
    }
  };
  retry.Run(
      [&] {
        try {
          return run();
        } catch (const Error&) {
          progress.ask.reset();
          ForgetSlots();
          throw;
        }
      },
      stop);
}

std::unique_ptr<Connection> ClusterClient::Take(const Address& server, Limits limits,
                                                const std::stop_token& stop) {
  while (true) {
    std::unique_ptr<Connection> connection;
    {
      const MutexLock lock(mutex_);
      const auto idle = idle_.find(server);
      if (idle == idle_.end()) break;
      connection = std::move(idle->second.back());
      idle->second.pop_back();
      --idle_count_;
      if (idle->second.empty()) idle_.erase(idle);
    }
    if (connection->is_idle()) {
      connection->SetLimits(limits);
      return connection;
    }
  }
  try {
    return std::make_unique<Connection>(server, target_, share_, trust_, limits, stop);
  } catch (const TransientError&) {
    throw;
  } catch (const Error& e) {
    if (server == target_.server) throw;
    throw WithContext("server " + ToString(server) + " of the cluster", e);
  }
}

void ClusterClient::Return(const Address& server, std::unique_ptr<Connection> connection) {
  const MutexLock lock(mutex_);
  if (idle_count_ == kMostIdleInAll) return;
  auto& idle = idle_[server];
  if (idle.size() == kMostIdle) return;
  idle.push_back(std::move(connection));
  ++idle_count_;
}

void ClusterClient::RequireTrusted(const Address& server) const {
  if (target_.is_tls || target_.password.empty() || !http::IsLoopback(target_.server.host) ||
      http::IsLoopback(server.host)) {
    return;
  }
  Fail(EACCES,
       "insecure redirect to {}: the password for a server on this machine is not sent to another "
       "machine without TLS (rediss://)",
       ToString(server));
}

Address ClusterClient::FindServer(const std::string& key) const {
  const MutexLock lock(mutex_);
  const uint16_t index = slots_.empty() ? kUnknown : slots_[resp::SlotOf(key)];
  return known_[index == kUnknown ? first_ : index];
}

void ClusterClient::Learn(const Address& server, std::optional<uint16_t> slot) {
  const MutexLock lock(mutex_);
  auto found = std::ranges::find(known_, server);
  if (found == known_.end()) {
    if (known_.size() == kMostServers) {
      Fail(EPROTO, "too many servers in the cluster: more than {}", kMostServers);
    }
    found = known_.insert(known_.end(), server);
  }
  if (!slot) return;
  if (slots_.empty()) slots_.resize(resp::kSlots, kUnknown);
  slots_[*slot] = static_cast<uint16_t>(found - known_.begin());
}

void ClusterClient::ForgetSlots() {
  const MutexLock lock(mutex_);
  slots_.clear();
  // The server for unknown slots may be the one that failed.
  first_ = (first_ + 1) % known_.size();
}

}  // namespace ckptfs::redis
