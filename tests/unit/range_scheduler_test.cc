// Drives the state machine of the cache through orders of events, without threads and without time:
// a small model of readers and fetches, in which a list of choices determines the next event. All
// lists are tried for tiny models, and many random ones for others.

#include "parser/layer/range_cache/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parser/io/remote_object.h"

namespace ckptfs {
namespace {

std::byte ByteAt(uint32_t object, uint64_t offset) {
  return static_cast<std::byte>((offset * 2654435761U) >> 7U ^ offset ^ uint64_t{object} * 77);
}

// Returns which of `count` events happens next.
using Choose = std::function<size_t(size_t count)>;

struct Scenario {
  size_t memory = 0;  // In blocks.
  size_t most_fetches = 0;
  std::vector<uint64_t> objects;  // Their sizes.
  std::vector<std::pair<uint32_t, ByteRange>> files;
  // For each reader what it reads, one after another.
  std::vector<std::vector<std::pair<uint32_t, ByteRange>>> readers;
  unsigned most_failures = 0;
  unsigned most_interruptions = 0;
};

class Model {
 public:
  Model(const Scenario& scenario, Choose choose)
      : scenario_(scenario),
        choose_(std::move(choose)),
        scheduler_(scenario.memory * kBlockSize, scenario.most_fetches) {
    for (const uint64_t size : scenario.objects) scheduler_.AddObject(size);
    for (const auto& [object, range] : scenario.files) scheduler_.AdviseFile(object, range);
    readers_.resize(scenario.readers.size());
  }

  // Returns what went wrong; empty if nothing did.
  std::string Run() {
    constexpr size_t kMostSteps = 20'000;
    for (size_t step = 0; step < kMostSteps && problem_.empty(); ++step) {
      TakeAll();
      Check();
      std::vector<std::function<void()>> events;
      AddReaders(events);
      AddFetches(events);
      if (events.empty()) break;
      events[choose_(events.size())]();
      now_ += std::chrono::milliseconds(1);
    }
    for (size_t i = 0; i < readers_.size() && problem_.empty(); ++i) {
      if (readers_[i].next < scenario_.readers[i].size()) Problem("a reader waits for ever");
    }
    if (problem_.empty() && scheduler_.waiter_count() != 0) Problem("somebody is left waiting");
    if (problem_.empty() && scheduler_.fetch_count() != 0) Problem("a fetch is left");
    if (problem_.empty() && scheduler_.memory_busy() != 0) Problem("memory is left busy");
    return problem_;
  }

  unsigned errors() const { return errors_; }
  uint64_t fetched() const { return fetched_; }

 private:
  struct Reader {
    size_t next = 0;  // The index of its next read.
    uint64_t done = 0;
    bool is_reading = false;
    ReadAhead::StreamId stream = 0;
    std::unique_ptr<Waiter> waiter;
    Frame* pinned = nullptr;  // It is copying from this.
    size_t pinned_length = 0;
  };

  struct Fetching {
    std::unique_ptr<RangeFetch> fetch;
    size_t frame = 0;
    size_t filled = 0;
  };

  void Problem(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }

  void TakeAll() {
    while (auto fetch = scheduler_.Take(now_)) {
      for (size_t i = 0; i < fetch->frames.size(); ++i) {
        if (!in_flight_.insert({fetch->object, fetch->first_block + i}).second) {
          Problem("a block is fetched twice at the same time");
        }
      }
      scheduler_.Start(*fetch, now_);  // One that is not answered for long is begun again.
      fetching_.push_back({std::move(fetch)});
    }
  }

  void Check() {
    if (scheduler_.memory_used() > scheduler_.capacity())
      Problem("there is too much memory in use");
    if (fetching_.size() > scenario_.most_fetches) Problem("there are too many fetches");
  }

  void AddReaders(std::vector<std::function<void()>>& events) {
    for (size_t i = 0; i < readers_.size(); ++i) {
      Reader& reader = readers_[i];
      if (reader.next == scenario_.readers[i].size()) continue;
      const auto& [object, range] = scenario_.readers[i][reader.next];
      if (reader.pinned != nullptr) {
        events.emplace_back([this, &reader] { EndCopy(reader); });
      } else if (!reader.is_reading) {
        events.emplace_back([this, &reader, object = object, range = range] {
          reader.stream = scheduler_.RecordRead(object, range, now_);
          reader.is_reading = true;
        });
      } else if (reader.waiter == nullptr) {
        events.emplace_back(
            [this, &reader, object = object, range = range] { Step(reader, object, range); });
      } else {
        const Waiter& waiter = *reader.waiter;
        if (waiter.error || scheduler_.Find(waiter.key, waiter.begin, waiter.needed) != nullptr) {
          events.emplace_back(
              [this, &reader, object = object, range = range] { EndWait(reader, object, range); });
        } else if (interruptions_ < scenario_.most_interruptions) {
          events.emplace_back([this, &reader] {
            ++interruptions_;
            scheduler_.Leave(*reader.waiter);
            EndRead(reader);
          });
        }
      }
    }
  }

  void Step(Reader& reader, uint32_t object, ByteRange range) {
    const uint64_t position = range.offset + reader.done;
    const BlockKey key{object, position / kBlockSize};
    const size_t begin = position % kBlockSize;
    const uint64_t left = range.length - reader.done;
    const size_t end =
        std::min<uint64_t>(BlockLength(scenario_.objects[object], key.block), begin + left);
    Frame* frame = scheduler_.Find(key, begin, end);
    if (frame == nullptr) {
      reader.waiter =
          std::make_unique<Waiter>(Waiter{.key = key,
                                          .begin = begin,
                                          .needed = end,
                                          .end_block = BlockCount(range.offset + range.length),
                                          .stream = reader.stream,
                                          .error = std::nullopt});
      scheduler_.Wait(*reader.waiter);
      return;
    }
    scheduler_.Pin(*frame);
    for (size_t i = begin; i < end; ++i) {
      if (frame->bytes[i] != ByteAt(object, key.block * kBlockSize + i)) {
        return Problem("a reader gets wrong bytes");
      }
    }
    reader.pinned = frame;
    reader.pinned_length = end - begin;
  }

  void EndCopy(Reader& reader) {
    const auto& range =
        scenario_.readers[static_cast<size_t>(&reader - readers_.data())][reader.next].second;
    scheduler_.Unpin(*reader.pinned, reader.pinned_length);
    reader.done += reader.pinned_length;
    reader.pinned = nullptr;
    if (reader.done == range.length) EndRead(reader);
  }

  // A waiter gets its block before any other reader does.
  void EndWait(Reader& reader, uint32_t object, ByteRange range) {
    scheduler_.Leave(*reader.waiter);
    if (reader.waiter->error) {
      ++errors_;
      return EndRead(reader);
    }
    reader.waiter.reset();
    Step(reader, object, range);
  }

  static void EndRead(Reader& reader) {
    ++reader.next;
    reader.done = 0;
    reader.is_reading = false;
    reader.waiter.reset();
  }

  void AddFetches(std::vector<std::function<void()>>& events) {
    for (size_t i = 0; i < fetching_.size(); ++i) {
      if (fetching_[i].fetch->stop.stop_requested()) {
        events.emplace_back([this, i] { EndFetch(i, Error(ECANCELED, "cancelled")); });
        continue;
      }
      events.emplace_back([this, i] { Deliver(i); });
      if (failures_ < scenario_.most_failures) {
        events.emplace_back([this, i] {
          ++failures_;
          EndFetch(i, Error(EIO, "lost"));
        });
      }
    }
  }

  // A frame arrives in two pieces.
  void Deliver(size_t i) {
    Fetching& fetching = fetching_[i];
    Frame& frame = *fetching.fetch->frames[fetching.frame];
    if (fetching.filled == 0) fetching.filled = frame.begin;
    const bool is_first = fetching.filled == frame.begin;
    const size_t to = is_first ? (frame.begin + frame.size + 1) / 2 : frame.size;
    for (size_t at = fetching.filled; at < to; ++at) {
      frame.bytes[at] = ByteAt(frame.key.object, frame.key.block * kBlockSize + at);
    }
    fetched_ += to - fetching.filled;
    scheduler_.Receive(*fetching.fetch, to - fetching.filled, now_);
    scheduler_.Arrived(*fetching.fetch, frame, to, now_);
    fetching.filled = to == frame.size ? 0 : to;
    if (to == frame.size && ++fetching.frame == fetching.fetch->frames.size()) EndFetch(i, {});
  }

  void EndFetch(size_t i, const std::optional<Error>& error) {
    auto fetch = std::move(fetching_[i].fetch);
    fetching_.erase(fetching_.begin() + static_cast<std::ptrdiff_t>(i));
    for (size_t block = 0; block < fetch->frames.size(); ++block) {
      in_flight_.erase({fetch->object, fetch->first_block + block});
    }
    scheduler_.Finish(std::move(fetch), error, now_);
  }

  const Scenario& scenario_;
  const Choose choose_;
  Scheduler scheduler_;
  Scheduler::Clock::time_point now_{std::chrono::hours(1)};
  std::vector<Reader> readers_;
  std::vector<Fetching> fetching_;
  std::set<std::pair<uint32_t, uint64_t>> in_flight_;
  std::string problem_;
  unsigned failures_ = 0;
  unsigned interruptions_ = 0;
  unsigned errors_ = 0;
  uint64_t fetched_ = 0;
};

// Tries all lists of choices, or as many of them as `most`. Returns what went wrong first.
std::string TryAll(const Scenario& scenario, size_t most, size_t& tried) {
  std::vector<std::pair<size_t, size_t>> path;  // Each choice, and the number of alternatives.
  for (tried = 0; tried < most; ++tried) {
    size_t depth = 0;
    Model model(scenario, [&](size_t count) {
      if (depth == path.size()) path.emplace_back(0, count);
      return path[depth++].first;
    });
    if (std::string problem = model.Run(); !problem.empty()) return problem;
    while (!path.empty() && path.back().first + 1 == path.back().second) path.pop_back();
    if (path.empty()) return {};
    ++path.back().first;
  }
  return {};
}

std::string TryAtRandom(const Scenario& scenario, unsigned seeds) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    Model model(scenario, [&](size_t count) { return random() % count; });
    if (const std::string problem = model.Run(); !problem.empty()) {
      return problem + ", seed " + std::to_string(seed);
    }
  }
  return {};
}

constexpr uint64_t kBlock = kBlockSize;

TEST(RangeScheduler, ServesTwoReadersOfOneBlockInAnyOrderOfEvents) {
  const Scenario scenario{.memory = 2,
                          .most_fetches = 2,
                          .objects = {100},
                          .files = {},
                          .readers = {{{0, {0, 100}}}, {{0, {50, 50}}}},
                          .most_failures = 1,
                          .most_interruptions = 1};
  size_t tried = 0;
  EXPECT_EQ(TryAll(scenario, 200'000, tried), "");
  EXPECT_LT(tried, 200'000U);
  EXPECT_GT(tried, 1'000U);
}

TEST(RangeScheduler, ServesReadersOfMoreThanFitsIntoMemoryInAnyOrderOfEvents) {
  const Scenario scenario{.memory = 1,
                          .most_fetches = 2,
                          .objects = {10, 10},
                          .files = {{0, {0, 10}}, {1, {0, 10}}},
                          .readers = {{{0, {0, 10}}, {1, {2, 4}}}, {{1, {0, 10}}}},
                          .most_failures = 1,
                          .most_interruptions = 0};
  size_t tried = 0;
  EXPECT_EQ(TryAll(scenario, 100'000, tried), "");
}

TEST(RangeScheduler, ServesSequentialReadersAtRandom) {
  Scenario scenario{.memory = 12,
                    .most_fetches = 3,
                    .objects = {20 * kBlock + 5},
                    .files = {{0, {100, 9 * kBlock}}, {0, {9 * kBlock + 200, 11 * kBlock - 195}}},
                    .readers = {{}, {}, {}},
                    .most_failures = 2,
                    .most_interruptions = 2};
  for (uint64_t offset = 0; offset < scenario.objects[0]; offset += 2 * kBlock) {
    const ByteRange piece{offset, std::min(2 * kBlock, scenario.objects[0] - offset)};
    scenario.readers[0].emplace_back(0, piece);
    scenario.readers[1].emplace_back(0, piece);
  }
  scenario.readers[2] = {{0, {7 * kBlock + 1, 4096}}, {0, {1, 1}}, {0, {19 * kBlock, kBlock + 5}}};
  EXPECT_EQ(TryAtRandom(scenario, 150), "");
}

TEST(RangeScheduler, ServesMoreReadersThanItHasMemoryFor) {
  Scenario scenario{.memory = 2,
                    .most_fetches = 4,
                    .objects = {8 * kBlock, 3 * kBlock + 7},
                    .files = {},
                    .readers = {},
                    .most_failures = 0,
                    .most_interruptions = 1};
  for (uint64_t reader = 0; reader < 6; ++reader) {
    scenario.readers.push_back({{0, {reader * kBlock + 10, 2 * kBlock}},
                                {1, {reader % 3 * kBlock, kBlock}},
                                {0, {7 * kBlock, kBlock}}});
  }
  EXPECT_EQ(TryAtRandom(scenario, 150), "");
}

TEST(RangeScheduler, ServesScatteredReadersOfOneBlockInAnyOrderOfEvents) {
  const Scenario scenario{
      .memory = 2,
      .most_fetches = 2,
      .objects = {2 * kBlock},
      .files = {{0, {0, 2 * kBlock}}},
      .readers = {{{0, {20'000, 10}}, {0, {9'000, 10}}}, {{0, {15'000, 10}}, {0, {0, 2 * kBlock}}}},
      .most_failures = 1,
      .most_interruptions = 1};
  size_t tried = 0;
  EXPECT_EQ(TryAll(scenario, 3'000, tried), "");
}

TEST(RangeScheduler, ServesManyScatteredReadersAtRandom) {
  Scenario scenario{.memory = 6,
                    .most_fetches = 4,
                    .objects = {12 * kBlock},
                    .files = {{0, {0, 12 * kBlock}}},
                    .readers = {},
                    .most_failures = 1,
                    .most_interruptions = 1};
  for (uint64_t reader = 0; reader < 6; ++reader) {
    auto& reads = scenario.readers.emplace_back();
    for (uint64_t i = 0; i < 8; ++i) {
      const uint64_t block = (5 * i + reader) % 12;
      reads.push_back({0, {block * kBlock + (7'000 * (reader + i)) % (kBlock - 4096), 4096}});
    }
    reads.push_back({0, {reader * kBlock, 5 * kBlock}});
  }
  EXPECT_EQ(TryAtRandom(scenario, 150), "");
}

TEST(RangeScheduler, FetchesABlockFromAScatteredReadOn) {
  const Scheduler::Clock::time_point now;
  Scheduler scheduler(64 * kBlock, 8);
  const uint32_t object = scheduler.AddObject(32 * kBlock);
  scheduler.AdviseFile(object, {0, 32 * kBlock});
  const auto fetch = [&](uint64_t offset) {
    Waiter waiter{.key = {object, offset / kBlock},
                  .begin = offset % kBlock,
                  .needed = offset % kBlock + 10,
                  .end_block = offset / kBlock + 1,
                  .stream = scheduler.RecordRead(object, {offset, 10}, now),
                  .error = std::nullopt};
    scheduler.Wait(waiter);
    auto taken = scheduler.Take(now);
    scheduler.Leave(waiter);
    return taken;
  };
  auto first = fetch(10 * kBlock + 20'000);
  ASSERT_EQ(first->frames.size(), 1U);
  EXPECT_EQ(first->frames[0]->begin, 20'000U);
  scheduler.Arrived(*first, *first->frames[0], kBlock, now);
  scheduler.Finish(std::move(first), {}, now);
  EXPECT_NE(scheduler.Find({object, 10}, 20'000, kBlock), nullptr);
  EXPECT_EQ(scheduler.Find({object, 10}, 19'999, kBlock), nullptr);
  auto second = fetch(20 * kBlock + 100);
  EXPECT_EQ(second->frames[0]->begin, 100U);
  scheduler.Finish(std::move(second), {}, now);
  auto again = fetch(10 * kBlock + 1'000);
  EXPECT_EQ(again->frames[0]->begin, 0U) << "fetched a second time, so all of it";
  scheduler.Finish(std::move(again), {}, now);
}

TEST(RangeScheduler, ReportsAFailureToItsWaiters) {
  const Scenario scenario{.memory = 4,
                          .most_fetches = 1,
                          .objects = {kBlock},
                          .files = {},
                          .readers = {{{0, {0, kBlock}}}},
                          .most_failures = 1,
                          .most_interruptions = 0};
  // The event: a reader begins, waits, or its fetch fails.
  size_t step = 0;
  Model model(scenario, [&](size_t count) { return ++step == 3 ? count - 1 : 0; });
  EXPECT_EQ(model.Run(), "");
  EXPECT_EQ(model.errors(), 1U);
}

TEST(RangeScheduler, SharesOneFetchBetweenReaders) {
  const Scenario scenario{.memory = 16,
                          .most_fetches = 3,
                          .objects = {8 * kBlock},
                          .files = {{0, {0, 8 * kBlock}}},
                          .readers = std::vector<std::vector<std::pair<uint32_t, ByteRange>>>(
                              8, {{0, {0, 4 * kBlock}}, {0, {4 * kBlock, 4 * kBlock}}}),
                          .most_failures = 0,
                          .most_interruptions = 0};
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Model model(scenario, [&](size_t count) { return random() % count; });
    EXPECT_EQ(model.Run(), "");
    EXPECT_EQ(model.fetched(), 8 * kBlock) << seed;
  }
}

// The directory of an archive, over a long link.
TEST(RangeScheduler, DividesWhatAParserAnnouncesAmongAllConnections) {
  constexpr uint64_t kBlocks = 96;
  const Scheduler::Clock::time_point now;
  Scheduler scheduler(2 * kBlocks * kBlockSize, 64);
  const uint32_t object = scheduler.AddObject(2 * kBlocks * kBlockSize);
  auto head = scheduler.TakeHead(
      object, {.length = kBlockSize, .round_trip = std::chrono::milliseconds(50)}, now);
  scheduler.Finish(std::move(head), {}, now);
  const ByteRange range = {kBlockSize, kBlocks * kBlockSize};
  scheduler.Prefetch(object, {&range, 1});
  std::vector<std::unique_ptr<RangeFetch>> fetches;
  while (auto fetch = scheduler.Take(now)) fetches.push_back(std::move(fetch));
  ASSERT_EQ(fetches.size(), 8U);
  for (const auto& fetch : fetches) EXPECT_EQ(fetch->frames.size(), kBlocks / 8);
  for (auto& fetch : fetches) scheduler.Finish(std::move(fetch), {}, now);
  EXPECT_EQ(scheduler.Take(now), nullptr);
}

// The directory of an archive and its pickle, which is three times as long.
TEST(RangeScheduler, DividesRangesThatAreAnnouncedTogether) {
  const Scheduler::Clock::time_point now;
  Scheduler scheduler(200 * kBlockSize, 64);
  const uint32_t object = scheduler.AddObject(200 * kBlockSize);
  scheduler.Finish(
      scheduler.TakeHead(object,
                         {.length = kBlockSize, .round_trip = std::chrono::milliseconds(50)}, now),
      {}, now);
  const std::array<ByteRange, 2> ranges = {
      {{150 * kBlockSize, 20 * kBlockSize}, {kBlockSize, 60 * kBlockSize}}};
  scheduler.Prefetch(object, ranges);
  std::vector<std::unique_ptr<RangeFetch>> fetches;
  while (auto fetch = scheduler.Take(now)) fetches.push_back(std::move(fetch));
  ASSERT_EQ(fetches.size(), 8U);
  for (auto& fetch : fetches) {
    EXPECT_EQ(fetch->frames.size(), 10U);
    scheduler.Finish(std::move(fetch), {}, now);
  }
}

// Over a long link, the end record arrives before more of the tail would.
TEST(RangeScheduler, FetchesTheEndOfAnArchiveAlone) {
  constexpr uint64_t kSize = 64 * kBlockSize + 20'000;
  constexpr uint64_t kEnd = 12 << 10U;
  const Scheduler::Clock::time_point now;
  Scheduler scheduler(128 * kBlockSize, 64);
  const uint32_t object = scheduler.AddObject(kSize);
  scheduler.Finish(
      scheduler.TakeHead(object,
                         {.length = kBlockSize, .round_trip = std::chrono::milliseconds(50)}, now),
      {}, now);
  Waiter waiter{.key = {object, 64},
                .begin = 19'000,
                .needed = 20'000,
                .end_block = 65,
                .stream = scheduler.RecordRead(object, {kSize - 1'000, 1'000}, now),
                .error = std::nullopt};
  scheduler.Wait(waiter);
  auto record = scheduler.Take(now);
  ASSERT_NE(record, nullptr);
  ASSERT_EQ(record->frames.size(), 1U);
  EXPECT_EQ(record->frames[0]->begin, 20'000 - kEnd);
  EXPECT_EQ(scheduler.Take(now), nullptr);
  scheduler.Arrived(*record, *record->frames[0], 20'000, now);
  EXPECT_NE(scheduler.Find({object, 64}, 19'000, 20'000), nullptr);
  scheduler.Leave(waiter);

  // The rest of its block is fetched with the directory, once the first fetch has ended.
  const ByteRange directory = {62 * kBlockSize, kSize - 62 * kBlockSize};
  scheduler.Prefetch(object, {&directory, 1});
  std::vector<std::unique_ptr<RangeFetch>> fetches;
  while (auto fetch = scheduler.Take(now)) fetches.push_back(std::move(fetch));
  EXPECT_EQ(fetches.size(), 2U);
  scheduler.Finish(std::move(record), {}, now);
  fetches.push_back(scheduler.Take(now));
  ASSERT_NE(fetches.back(), nullptr);
  EXPECT_EQ(fetches.back()->first_block, 64U);
  EXPECT_EQ(fetches.back()->frames[0]->begin, 0U);
  EXPECT_EQ(scheduler.Take(now), nullptr);
  for (auto& fetch : fetches) scheduler.Finish(std::move(fetch), {}, now);
}

}  // namespace
}  // namespace ckptfs
