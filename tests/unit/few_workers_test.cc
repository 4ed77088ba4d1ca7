// Simulates a server with few workers, each of which serves one connection until that is closed, as
// apache's prefork does: other connections are not answered. Time is simulated, too.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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

// On a busy machine, a request is sent late, on a new connection, since another one has taken the
// idle connection that it was meant for. It is the only one that is left when the others are
// stopped.
TEST(FewWorkers, GetARequestThatWasSentLate) {
  constexpr uint64_t kDistance = 64 * kBlockSize;
  constexpr uint64_t kReaders = 9;
  const auto start = Scheduler::Clock::time_point(std::chrono::hours(1));
  const auto at = [&](int time) { return start + milliseconds(time); };
  Scheduler scheduler(64 * kMiB, 64);
  const uint32_t object = scheduler.AddObject(kReaders * kDistance);
  scheduler.AdviseFile(object, {0, kReaders * kDistance});
  std::list<Waiter> waiters;
  const auto read = [&](uint64_t number, int time) {
    const uint64_t offset = number * kDistance;
    waiters.push_back({.key = {object, offset / kBlockSize},
                       .begin = 0,
                       .needed = kBlockSize,
                       .end_block = offset / kBlockSize + 1,
                       .stream = scheduler.RecordRead(object, {offset, kBlockSize}, at(time)),
                       .error = std::nullopt});
    scheduler.Wait(waiters.back());
    return scheduler.Take(at(time));
  };
  const auto receive = [&](std::unique_ptr<RangeFetch> fetch, int answer, int end) {
    scheduler.Receive(*fetch, 1, at(answer));
    for (Frame* frame : fetch->frames) scheduler.Arrived(*fetch, *frame, frame->size, at(end));
    scheduler.Finish(std::move(fetch), {}, at(end));
  };
  std::vector<std::unique_ptr<RangeFetch>> unanswered;
  for (uint64_t i = 0; i < 8; ++i) {
    unanswered.push_back(read(i, 0));
    ASSERT_NE(unanswered.back(), nullptr);
    scheduler.Start(*unanswered.back(), at(0));
  }
  const auto take = [&] {
    auto fetch = std::move(unanswered.back());
    unanswered.pop_back();
    return fetch;
  };
  receive(take(), 20, 21);
  auto late = read(8, 21);
  ASSERT_NE(late, nullptr);
  scheduler.Start(*late, at(80));
  receive(take(), 40, 100);

  for (int time = 100; time < 500; time += 10) {
    EXPECT_EQ(scheduler.Take(at(time)), nullptr) << "as many requests run as there are workers";
    constexpr int kThreadsRunAgain = 150;
    std::erase_if(unanswered, [&](auto& fetch) {
      if (time < kThreadsRunAgain || !fetch->stop.stop_requested()) return false;
      scheduler.Finish(std::move(fetch), Error(ECANCELED, "cancelled"), at(time));
      return true;
    });
  }
  EXPECT_TRUE(unanswered.empty());
  EXPECT_TRUE(late->stop.stop_requested()) << "its connection has no worker";
  scheduler.Finish(std::move(late), Error(ECANCELED, "cancelled"), at(500));
  auto next = scheduler.Take(at(500));
  ASSERT_NE(next, nullptr);
  scheduler.Finish(std::move(next), {}, at(500));
  for (Waiter& waiter : waiters) scheduler.Leave(waiter);
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
