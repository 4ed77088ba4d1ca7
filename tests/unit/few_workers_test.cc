// Simulates a server with few workers, each of which serves one connection until that is closed, as
// apache's prefork does: other connections are not answered. Time is simulated, too.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "parser/io/prefetch.h"
#include "parser/io/remote_object.h"
#include "parser/layer/range_cache/scheduler.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMiB = uint64_t{1} << 20U;

// A server, the connections to it, and a program that reads all files of an object in order.
class Simulation {
 public:
  struct Server {
    size_t workers = 0;
    milliseconds latency{0};
    milliseconds jitter{0};   // Every fifth response begins later by this.
    uint64_t rate = 125'000;  // Bytes per millisecond, of all connections together.
  };

  static constexpr uint64_t kFiles = 16;
  static constexpr uint64_t kFileSize = 4 * kMiB;
  static constexpr uint64_t kSize = kFiles * kFileSize;

  explicit Simulation(Server server) : server_(server) {
    object_ = scheduler_.AddObject(kSize);
    auto head = scheduler_.TakeHead(
        object_,
        {.length = kPrefetchedHead, .round_trip = server.latency, .latency = server.latency}, now_);
    connections_.push_back({.has_worker = true});
    Begin(std::move(head), connections_.back());
    for (uint64_t i = 0; i < kFiles; ++i) {
      scheduler_.AdviseFile(object_, {i * kFileSize, kFileSize});
    }
  }

  // Returns how long it takes to read all.
  milliseconds Run() {
    const auto start = now_;
    while (offset_ < kSize && now_ - start < std::chrono::minutes(10)) {
      Read();
      Dispatch();
      Assign();
      Deliver();
      now_ += milliseconds(1);
    }
    if (waiter_) scheduler_.Leave(*waiter_);
    for (auto& connection : connections_) {
      if (connection.fetch != nullptr) End(connection);
    }
    return std::chrono::duration_cast<milliseconds>(now_ - start);
  }

  size_t requests() const { return requests_; }
  size_t stopped() const { return stopped_; }

 private:
  struct Connection {
    bool has_worker = false;
    std::unique_ptr<RangeFetch> fetch;
    Scheduler::Clock::time_point answer;  // When the response begins; the epoch: not known yet.
    size_t frame = 0;
    bool is_closed = false;
  };

  void Begin(std::unique_ptr<RangeFetch> fetch, Connection& connection) {
    ++requests_;
    connection.fetch = std::move(fetch);
    connection.answer = {};
    connection.frame = 0;
    scheduler_.Start(*connection.fetch, now_);
  }

  // The fetch ends; without an error if all of it has arrived.
  void End(Connection& connection) {
    std::optional<Error> error;
    if (connection.frame < connection.fetch->frames.size()) {
      error = Error(ECANCELED, "cancelled");
      connection.is_closed = true;
      ++stopped_;
    }
    scheduler_.Finish(std::move(connection.fetch), error, now_);
  }

  void Dispatch() {
    while (auto fetch = scheduler_.Take(now_)) {
      const auto idle = std::find_if(connections_.begin(), connections_.end(),
                                     [](const Connection& c) { return c.fetch == nullptr; });
      if (idle == connections_.end()) connections_.emplace_back();
      Begin(std::move(fetch), idle == connections_.end() ? connections_.back() : *idle);
    }
  }

  // Gives workers to connections in the order in which these were established.
  void Assign() {
    for (auto& connection : connections_) {
      if (connection.fetch != nullptr && connection.fetch->stop.stop_requested()) End(connection);
    }
    connections_.remove_if([](const Connection& c) { return c.is_closed; });
    size_t free = server_.workers -
                  static_cast<size_t>(std::ranges::count_if(connections_, &Connection::has_worker));
    for (auto& connection : connections_) {
      if (!connection.has_worker && free > 0) {
        connection.has_worker = true;
        --free;
      }
      if (connection.has_worker && connection.fetch != nullptr &&
          connection.answer == Scheduler::Clock::time_point()) {
        const bool is_late = ++answers_ % 5 == 0;
        connection.answer = now_ + server_.latency + (is_late ? server_.jitter : milliseconds(0));
      }
    }
  }

  void Deliver() {
    const auto is_sending = [this](const Connection& c) {
      return c.fetch != nullptr && c.has_worker && now_ >= c.answer;
    };
    for (credit_ = std::min(credit_ + server_.rate, 2 * server_.rate); credit_ >= kBlockSize;) {
      bool has_sent = false;
      for (auto& connection : connections_) {
        if (!is_sending(connection) || credit_ < kBlockSize) continue;
        has_sent = true;
        credit_ -= kBlockSize;
        Frame& frame = *connection.fetch->frames[connection.frame++];
        scheduler_.Receive(*connection.fetch, frame.size, now_);
        scheduler_.Arrived(*connection.fetch, frame, frame.size, now_);
        if (connection.frame == connection.fetch->frames.size()) End(connection);
      }
      if (!has_sent) return;
    }
    // The next one is served first.
    connections_.splice(connections_.end(), connections_, connections_.begin());
  }

  // Reads by 128 KiB, as far as bytes have arrived.
  void Read() {
    constexpr uint64_t kPiece = uint64_t{128} << 10U;
    while (offset_ < kSize) {
      if (!is_reading_) stream_ = scheduler_.RecordRead(object_, {offset_, kPiece}, now_);
      is_reading_ = true;
      for (; done_ < kPiece; done_ += kBlockSize) {
        const BlockKey key{object_, (offset_ + done_) / kBlockSize};
        Frame* frame = scheduler_.Find(key, 0, kBlockSize);
        if (frame == nullptr) {
          if (!waiter_) {
            waiter_ = std::make_unique<Waiter>(Waiter{.key = key,
                                                      .begin = 0,
                                                      .needed = kBlockSize,
                                                      .end_block = BlockCount(offset_ + kPiece),
                                                      .stream = stream_,
                                                      .error = std::nullopt});
            scheduler_.Wait(*waiter_);
          }
          return;
        }
        if (waiter_) scheduler_.Leave(*waiter_);
        waiter_.reset();
        scheduler_.Pin(*frame);
        scheduler_.Unpin(*frame, kBlockSize);
      }
      offset_ += kPiece;
      done_ = 0;
      is_reading_ = false;
    }
  }

  const Server server_;
  Scheduler scheduler_{256 * kMiB, 64};
  Scheduler::Clock::time_point now_{std::chrono::hours(1)};
  uint32_t object_ = 0;
  std::list<Connection> connections_;
  uint64_t credit_ = 0;
  size_t requests_ = 0;
  size_t stopped_ = 0;
  size_t answers_ = 0;

  uint64_t offset_ = 0;
  uint64_t done_ = 0;
  bool is_reading_ = false;
  ReadAhead::StreamId stream_ = 0;
  std::unique_ptr<Waiter> waiter_;
};

// The link takes 537 ms.
constexpr milliseconds kOfLink{Simulation::kSize / 125'000};

TEST(FewWorkers, AreKeptBusy) {
  for (const unsigned workers : {1U, 2U, 3U, 4U, 6U}) {
    Simulation simulation({.workers = workers, .latency = milliseconds(20)});
    EXPECT_LT(simulation.Run(), kOfLink * 3 / 2) << workers;
  }
}

TEST(FewWorkers, AreKeptBusyOnALongLink) {
  for (const unsigned workers : {1U, 2U, 4U}) {
    Simulation simulation({.workers = workers, .latency = milliseconds(100)});
    EXPECT_LT(simulation.Run(), kOfLink * 4) << workers;
  }
}

TEST(FewWorkers, GetNoLessFromAServerThatIsSlowToAnswer) {
  for (const milliseconds latency : {milliseconds(1), milliseconds(20), milliseconds(150)}) {
    Simulation simulation({.workers = 64, .latency = latency});
    EXPECT_LT(simulation.Run(), kOfLink + 10 * latency) << latency.count();
    EXPECT_EQ(simulation.stopped(), 0U) << latency.count();
  }
}

TEST(FewWorkers, AreNotSuspectedOfLateAnswers) {
  for (const milliseconds jitter : {milliseconds(100), milliseconds(400)}) {
    Simulation simulation({.workers = 64, .latency = milliseconds(20), .jitter = jitter});
    EXPECT_LT(simulation.Run(), kOfLink + 5 * jitter) << jitter.count();
    EXPECT_LT(simulation.stopped(), simulation.requests() / 4) << jitter.count();
  }
}

}  // namespace
}  // namespace ckptfs
