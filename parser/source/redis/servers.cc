#include "parser/source/redis/servers.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <limits>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/http/url.h"
#include "parser/source/redis/answers.h"

namespace ckptfs::redis {
namespace {

constexpr uint16_t kUnknown = std::numeric_limits<uint16_t>::max();
constexpr size_t kMostServers = 1000;  // As many as a cluster may have.

// Connections: idle ones to one server, idle ones to all servers, and those of one attempt. A
// cluster names its servers itself, so that it could ask for any number of them.
constexpr size_t kMostIdle = 16;
constexpr size_t kMostIdleInAll = 64;
constexpr size_t kMostLeases = 32;

// What is asked for before the first answer is there.
constexpr size_t kMostQuestions = 1000;
constexpr uint64_t kMostBytes = uint64_t{4} << 20U;

}  // namespace

// How far a dialogue is.
struct Servers::Progress {
  size_t next = 0;             // The question whose answer is not there.
  std::optional<Address> ask;  // Where it, but no other, is to be asked.
};

// The connections of one attempt, one to each server. What is not given back is closed.
class Servers::Leases {
 public:
  Leases(Servers& servers, Limits limits, const std::stop_token& stop)
      : servers_(servers), limits_(limits), stop_(stop) {}

  // Whether an attempt may have a connection to `server`, too.
  bool HasRoomFor(const Address& server) const {
    return leases_.size() < kMostLeases || leases_.contains(server);
  }

  // Has `commands` sent to `server` with the next Flush.
  Connection& Write(const Address& server, const Dialogue::Question& question, bool is_once) {
    Lease& lease = To(server);
    for (const std::string& command : question.commands) {
      if (is_once) resp::AppendCommand({"ASKING"}, lease.unsent);
      lease.unsent += command;
    }
    return *lease.connection;
  }

  void Flush() {
    for (auto& [server, lease] : leases_) {
      lease.connection->Send(lease.unsent);
      lease.unsent.clear();
    }
  }

  // Gives all connections back: all answers have been read.
  void Return() {
    for (auto& [server, lease] : leases_) {
      lease.end.reset();
      servers_.Return(server, std::move(lease.connection));
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
      lease.connection = servers_.Take(server, limits_, stop_);
      lease.end =
          std::make_unique<std::stop_callback<ShutDown>>(stop_, ShutDown{lease.connection.get()});
    }
    return lease;
  }

  Servers& servers_;
  const Limits limits_;
  const std::stop_token& stop_;
  std::map<Address, Lease> leases_;
};

Servers::Servers(Target target, http::Trust trust)
    : target_(std::move(target)), trust_(std::move(trust)), known_({target_.server}) {}

void Servers::Run(Dialogue& dialogue, http::Attempts& attempts, const std::stop_token& stop) {
  constexpr int kMostInVain = 8;
  Progress progress;
  const auto run = [&] {
    http::Request request;
    attempts.Limit(request, kMostBytes);
    const Limits limits{.stall = request.stall,
                        .deadline = std::chrono::steady_clock::now() + request.deadline};
    int in_vain = 0;
    while (true) {
      const size_t before = progress.next;
      if (Attempt(dialogue, progress, limits, stop)) return true;
      in_vain = progress.next == before ? in_vain + 1 : 0;
      if (in_vain == kMostInVain) {
        throw http::Fault(EREMOTEIO, "the servers of the cluster send us to and fro");
      }
    }
  };
  attempts.Run(
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

bool Servers::Attempt(Dialogue& dialogue, Progress& progress, Limits limits,
                      const std::stop_token& stop) {
  struct Sent {
    Connection* connection;
    Address server;
    bool is_once;
    size_t answers;
    uint64_t bytes;
  };
  Leases leases(*this, limits, stop);
  std::deque<Sent> sent;  // And not answered.
  uint64_t bytes = 0;     // Of these.
  const auto send = [&](size_t i) {
    const Dialogue::Question question = dialogue.At(i);
    const bool is_once = i == progress.next && progress.ask.has_value();
    const Address server = is_once ? *progress.ask : ServerOf(question.key);
    if (!leases.HasRoomFor(server)) return false;
    Connection& connection = leases.Write(server, question, is_once);
    sent.push_back({&connection, server, is_once, question.commands.size(), question.answer_size});
    for (const std::string& command : question.commands) sent.back().bytes += command.size();
    bytes += sent.back().bytes;
    return true;
  };

  // Once an answer says that its key is elsewhere, those after it are read and left: they may say
  // the same of theirs.
  bool is_sent_away = false;
  const auto take = [&](const Sent& question, size_t i) {
    for (size_t n = 0; n < question.answers; ++n) {
      if (question.is_once) RequireNoError(question.connection->ReadHead());
      const resp::Head head = question.connection->ReadHead();
      const auto redirect =
          head.kind == resp::Head::Kind::kError ? resp::ReadRedirect(head.text) : std::nullopt;
      if (redirect) {
        const Address there{redirect->host.empty() ? question.server.host : redirect->host,
                            redirect->port};
        if (!IsHost(there.host))
          Fail(EPROTO, "the server says {}, which leads nowhere", Quoted(head.text));
        RequireTrusted(there);
        Learn(there, redirect->is_once ? std::nullopt : std::optional(redirect->slot));
        if (!is_sent_away && redirect->is_once) progress.ask = there;
        is_sent_away = true;
      } else if (is_sent_away) {
        if (head.number > static_cast<int64_t>(kLargestRange)) {
          Fail(EPROTO, "the server answers with {} bytes", head.number);
        }
        question.connection->Skip(head);
      } else {
        dialogue.Take(i, n, head, *question.connection);
      }
    }
  };

  for (size_t next = progress.next; progress.next < dialogue.size();) {
    while (!is_sent_away && next < dialogue.size() && sent.size() < kMostQuestions &&
           bytes < kMostBytes && send(next)) {
      ++next;
    }
    if (sent.empty()) {
      if (is_sent_away) break;
      leases.Return();  // The next question is for a server more than there is room for.
      continue;
    }
    leases.Flush();
    const Sent question = std::move(sent.front());
    sent.pop_front();
    bytes -= question.bytes;
    if (!is_sent_away) progress.ask.reset();
    take(question, progress.next);
    if (!is_sent_away) ++progress.next;
  }
  leases.Return();
  return !is_sent_away;
}

std::unique_ptr<Connection> Servers::Take(const Address& server, Limits limits,
                                          const std::stop_token& stop) {
  while (true) {
    std::unique_ptr<Connection> connection;
    {
      const std::scoped_lock lock(mutex_);
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
    return std::make_unique<Connection>(server, target_, trust_, limits, stop);
  } catch (const http::Fault&) {
    throw;
  } catch (const Error& e) {
    if (server == target_.server) throw;
    throw WithContext("the server " + Shown(server) + " of the cluster", e);
  }
}

void Servers::Return(const Address& server, std::unique_ptr<Connection> connection) {
  const std::scoped_lock lock(mutex_);
  if (idle_count_ == kMostIdleInAll) return;
  auto& idle = idle_[server];
  if (idle.size() == kMostIdle) return;
  idle.push_back(std::move(connection));
  ++idle_count_;
}

void Servers::RequireTrusted(const Address& server) const {
  if (target_.is_tls || target_.password.empty() || !http::IsLoopback(target_.server.host) ||
      http::IsLoopback(server.host)) {
    return;
  }
  Fail(EACCES,
       "the server redirects to {}: the password for a server on this machine is not sent to "
       "another machine without TLS (rediss://)",
       Shown(server));
}

Address Servers::ServerOf(const std::string& key) const {
  const std::scoped_lock lock(mutex_);
  const uint16_t index = slots_.empty() ? kUnknown : slots_[resp::SlotOf(key)];
  return known_[index == kUnknown ? first_ : index];
}

void Servers::Learn(const Address& server, std::optional<uint16_t> slot) {
  const std::scoped_lock lock(mutex_);
  auto found = std::ranges::find(known_, server);
  if (found == known_.end()) {
    if (known_.size() == kMostServers) {
      Fail(EPROTO, "the cluster has more than {} servers", kMostServers);
    }
    found = known_.insert(known_.end(), server);
  }
  if (!slot) return;
  if (slots_.empty()) slots_.resize(resp::kSlots, kUnknown);
  slots_[*slot] = static_cast<uint16_t>(found - known_.begin());
}

void Servers::ForgetSlots() {
  const std::scoped_lock lock(mutex_);
  slots_.clear();
  // The one that was asked so far may be what is broken.
  first_ = (first_ + 1) % known_.size();
}

}  // namespace ckptfs::redis
