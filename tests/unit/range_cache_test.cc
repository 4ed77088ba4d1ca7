#include "parser/layer/range_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/io/remote_object.h"

namespace ckptfs {
namespace {

using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::byte ByteAt(uint64_t offset) {
  return static_cast<std::byte>((offset * 2654435761U) >> 9U ^ offset);
}

// A server in this process, which sends pieces, and fails or waits on request.
class Server final : public RemoteObject {
 public:
  explicit Server(uint64_t size) : size_(size) {}

  std::string name() const override { return "test://object"; }
  uint64_t size() const override { return size_; }
  std::string identity() const override { return ""; }
  Head head() const override { return begun; }
  void ForgetHead() const override { is_forgotten = true; }

  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& stop) const override {
    const unsigned number = requests_++;
    if (fails(number)) Fail(ETIMEDOUT, "request {} is lost", number);
    AwaitGate(stop);
    requested_ += length;
    if (flushed) return TakeAll(offset, length, delivery);
    while (length > 0) {
      if (stop.stop_requested()) {
        requested_ -= length;
        Fail(ECANCELED, "stopped");
      }
      const auto room = delivery.room();
      const auto count = std::min<uint64_t>({room.size(), length, 10'000});
      for (size_t i = 0; i < count; ++i) room[i] = ByteAt(offset + i);
      delivery.Arrived(count);
      offset += count;
      length -= count;
    }
  }

  // From now on requests wait before they are answered, until Open.
  void Close() {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }

  unsigned requests() const { return requests_; }
  // In bytes. Excludes those that a stopped request did not send.
  uint64_t requested() const { return requested_; }

  std::function<bool(unsigned number)> fails = [](unsigned) { return false; };
  // Unless empty, the bytes are taken and flushed, and then this is called.
  std::function<void()> flushed;
  Head begun;
  mutable std::atomic<bool> is_forgotten = false;

 private:
  void TakeAll(uint64_t offset, uint64_t length, Delivery& delivery) const {
    while (length > 0) {
      std::vector<std::byte> bytes(std::min<uint64_t>(length, 10'000));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteAt(offset + i);
      delivery.Take(bytes);
      offset += bytes.size();
      length -= bytes.size();
    }
    delivery.Flush();
    flushed();
  }

  void AwaitGate(const std::stop_token& stop) const {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, stop, [&] { return is_open_; });
    if (stop.stop_requested()) Fail(ECANCELED, "stopped");
  }

  const uint64_t size_;
  mutable std::atomic<unsigned> requests_ = 0;
  mutable std::atomic<uint64_t> requested_ = 0;  // Bytes.
  mutable std::mutex mutex_;
  mutable std::condition_variable_any opened_;
  bool is_open_ = true;
};

class RangeCacheTest : public ::testing::Test {
 protected:
  void Make(size_t memory, uint64_t size) {
    MakeOpening(memory, size, {});
    source_->AdviseFile({0, size});
  }

  // While its files are not known yet.
  void MakeOpening(size_t memory, uint64_t size, RemoteObject::Head head) {
    cache_ = std::make_shared<RangeCache>(RangeCache::Settings{.memory = memory});
    server_ = std::make_shared<Server>(size);
    server_->begun = head;
    source_ = cache_->Add(server_);
  }

  // Reads and compares.
  bool IsRight(uint64_t offset, size_t length) const {
    std::vector<std::byte> buffer(length);
    source_->ReadAt(offset, buffer);
    for (size_t i = 0; i < length; ++i) {
      if (buffer[i] != ByteAt(offset + i)) return false;
    }
    return true;
  }

  void AwaitWaiting(size_t count) const {
    while (cache_->stats().waiting != count) std::this_thread::yield();
  }

  // Waits until nothing is being fetched any more.
  void AwaitIdle() const {
    while (cache_->stats().fetches != 0) std::this_thread::yield();
  }

  std::shared_ptr<RangeCache> cache_;
  std::shared_ptr<Server> server_;
  ByteSourcePtr source_;
};

constexpr size_t kMiB = size_t{1} << 20;

TEST_F(RangeCacheTest, ReadsAnObjectOfAnySize) {
  Make(8 * kMiB, 3 * kMiB + 12'345);
  EXPECT_TRUE(IsRight(0, 3 * kMiB + 12'345));
  EXPECT_TRUE(IsRight(3 * kMiB + 12'344, 1));
  EXPECT_TRUE(IsRight(kBlockSize - 1, 2));
}

TEST_F(RangeCacheTest, ReadsCachedBytesOnlyWithoutWaiting) {
  Make(8 * kMiB, 2 * kMiB);
  std::vector<std::byte> buffer(9 * kBlockSize);  // More than is copied at a time.
  server_->Close();
  EXPECT_FALSE(source_->TryReadAt(kBlockSize, buffer));
  EXPECT_EQ(cache_->stats().fetches, 0U);
  server_->Open();
  ASSERT_TRUE(IsRight(kBlockSize, buffer.size()));
  AwaitIdle();
  server_->Close();
  ASSERT_TRUE(source_->TryReadAt(kBlockSize + 1, std::span(buffer).first(buffer.size() - 1)));
  for (size_t i = 0; i + 1 < buffer.size(); ++i) {
    ASSERT_EQ(buffer[i], ByteAt(kBlockSize + 1 + i)) << i;
  }
}

TEST_F(RangeCacheTest, SharesOneFetchBetweenConcurrentReads) {
  Make(16 * kMiB, 2 * kMiB);
  server_->Close();
  std::vector<std::jthread> readers;
  readers.reserve(8);
  std::atomic<int> right = 0;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] { right += IsRight(0, 2 * kMiB) ? 1 : 0; });
  }
  AwaitWaiting(8);
  server_->Open();
  readers.clear();
  AwaitIdle();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(server_->requested(), 2 * kMiB);
}

TEST_F(RangeCacheTest, GivesBytesThatHaveComeBeforeAllOfTheirRangeHas) {
  Make(8 * kMiB, 10 * kMiB);
  EXPECT_TRUE(IsRight(0, 100));
  EXPECT_GE(cache_->stats().fetched, 100U);
}

TEST_F(RangeCacheTest, GivesBytesOnceTheyAreFlushed) {
  Make(8 * kMiB, 3 * kBlockSize + 5);
  std::atomic<bool> is_read = false;
  server_->flushed = [&] {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!is_read && std::chrono::steady_clock::now() < latest) std::this_thread::yield();
    EXPECT_TRUE(is_read);
  };
  EXPECT_TRUE(IsRight(0, 3 * kBlockSize + 5));
  is_read = true;
  AwaitIdle();
  EXPECT_EQ(cache_->stats().fetched, 3 * kBlockSize + 5);
}

TEST_F(RangeCacheTest, FetchesTheHeadAtOnceAndOnce) {
  MakeOpening(8 * kMiB, 10 * kMiB, {.length = 2 * kBlockSize});
  AwaitIdle();
  EXPECT_EQ(server_->requested(), 2 * kBlockSize);
  EXPECT_TRUE(IsRight(0, 2 * kBlockSize));
  EXPECT_EQ(server_->requests(), 1U);
  EXPECT_FALSE(server_->is_forgotten);
}

TEST_F(RangeCacheTest, FetchesAHeadThatIsTheWholeObject) {
  MakeOpening(8 * kMiB, kBlockSize + 1, {.length = kBlockSize + 1});
  AwaitIdle();
  EXPECT_TRUE(IsRight(0, kBlockSize + 1));
  EXPECT_EQ(server_->requests(), 1U);
}

TEST_F(RangeCacheTest, ForgetsAHeadThatItHasNoMemoryFor) {
  const auto other = std::make_shared<Server>(10 * kMiB);
  other->begun.length = 2 * kBlockSize;
  MakeOpening(8 * kMiB, 16 * kMiB, {});
  server_->Close();
  constexpr ByteRange kAll{.offset = 0, .length = 8 * kMiB};
  std::jthread reader([&] { EXPECT_TRUE(IsRight(kAll.offset, kAll.length)); });
  while (cache_->stats().busy < kAll.length) std::this_thread::yield();
  cache_->Add(other);
  EXPECT_TRUE(other->is_forgotten);
  server_->Open();
}

// On a long link, what a parser announces is divided among the connections.
TEST_F(RangeCacheTest, DividesWhatAParserWaitsForIfTheLinkIsLong) {
  constexpr ByteRange kDirectory{.offset = 5 * kMiB, .length = 2 * kMiB};
  MakeOpening(16 * kMiB, 10 * kMiB,
              {.length = kBlockSize, .round_trip = std::chrono::milliseconds(1)});
  source_->Prefetch({&kDirectory, 1});
  AwaitIdle();
  EXPECT_EQ(server_->requests(), 2U);
  MakeOpening(16 * kMiB, 10 * kMiB,
              {.length = kBlockSize, .round_trip = std::chrono::milliseconds(50)});
  AwaitIdle();
  source_->Prefetch({&kDirectory, 1});
  AwaitIdle();
  EXPECT_GE(server_->requests(), 9U);
  EXPECT_LE(server_->requests(), 16U);
  EXPECT_EQ(server_->requested(), kBlockSize + kDirectory.length);
}

TEST_F(RangeCacheTest, ReadsRightWithFaultsOfWhichReadersLearn) {
  Make(8 * kMiB, 40 * kMiB);
  server_->fails = [](unsigned number) { return number % 7 == 3; };
  std::vector<std::jthread> readers;
  std::atomic<int> wrong = 0;
  std::atomic<int> lost = 0;
  for (unsigned i = 0; i < 4; ++i) {
    readers.emplace_back([&, i] {
      std::mt19937_64 random(i);
      for (int n = 0; n < 60; ++n) {
        const size_t length = 1 + random() % 200'000;
        try {
          if (!IsRight(random() % (40 * kMiB - length), length)) ++wrong;
        } catch (const Error& e) {
          if (e.code() != ETIMEDOUT) ++wrong;
          ++lost;
        }
      }
    });
  }
  readers.clear();
  AwaitIdle();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(lost, 0);
  const RangeCache::Stats stats = cache_->stats();
  EXPECT_LE(stats.used, 8 * kMiB);
  EXPECT_EQ(stats.busy, 0U);
  EXPECT_EQ(stats.waiting, 0U);
}

TEST_F(RangeCacheTest, ReportsAFailedFetchAndRetriesOnTheNextRead) {
  Make(8 * kMiB, kMiB);
  std::atomic<bool> is_down = true;
  server_->fails = [&](unsigned) { return is_down.load(); };
  EXPECT_THAT([&] { IsRight(0, 10); }, ThrowsMessage<Error>(StartsWith("request ")));
  is_down = false;
  AwaitIdle();
  EXPECT_TRUE(IsRight(0, 10));
}

TEST_F(RangeCacheTest, LetsAReaderGiveUp) {
  Make(8 * kMiB, kMiB);
  server_->Close();
  const Cancellation::IsCancelled now = [] { return true; };
  {
    const Cancellation interruption(now);
    EXPECT_THAT([&] { IsRight(0, 10); }, ThrowsMessage<Error>("interrupted"));
  }
  EXPECT_EQ(cache_->stats().waiting, 0U);
  server_->Open();
  EXPECT_TRUE(IsRight(0, 10));
}

TEST_F(RangeCacheTest, GivesEachReadTheWholeTimeoutAfterAReaderThatComputes) {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  cache_ = std::make_shared<RangeCache>(
      RangeCache::Settings{.memory = 8 * kMiB, .timeout = milliseconds(500)});
  server_ = std::make_shared<Server>(8 * kMiB);
  source_ = cache_->Add(server_);
  ASSERT_TRUE(IsRight(0, 10));
  AwaitIdle();
  std::this_thread::sleep_for(milliseconds(1'200));
  server_->Close();
  const auto begin = Clock::now();
  EXPECT_THAT([&] { IsRight(7 * kMiB, 10); }, ThrowsMessage<Error>(StartsWith("timed out")));
  EXPECT_GE(Clock::now() - begin, milliseconds(1'400));
  server_->Open();
}

TEST_F(RangeCacheTest, MakesReadersFailWhenItStops) {
  Make(8 * kMiB, kMiB);
  server_->Close();
  std::string why;
  std::jthread reader([&] {
    try {
      IsRight(0, 10);
    } catch (const Error& e) {
      why = e.what();
    }
  });
  AwaitWaiting(1);
  cache_->Stop();
  reader.join();
  EXPECT_EQ(why, "the mount is shutting down");
  EXPECT_THAT([&] { IsRight(0, 10); }, ThrowsMessage<Error>("the mount is shutting down"));
}

TEST_F(RangeCacheTest, EndsWhileARequestIsNotAnswered) {
  Make(8 * kMiB, kMiB);
  server_->Close();
  const Cancellation::IsCancelled now = [] { return true; };
  const Cancellation interruption(now);
  EXPECT_THROW(IsRight(0, 10), Error);
  source_.reset();
  cache_.reset();  // Waits for its threads.
}

TEST_F(RangeCacheTest, FetchesSideBySideWhatWillBeReadSoon) {
  Make(8 * kMiB, 100 * kMiB);
  server_->Close();
  const ByteRange ranges[] = {{0, 10}, {50 * kMiB, 10}, {99 * kMiB, 10}};
  source_->Prefetch(ranges);
  while (server_->requests() != 3) std::this_thread::yield();
  server_->Open();
  EXPECT_TRUE(IsRight(50 * kMiB, 10));
  EXPECT_TRUE(IsRight(99 * kMiB, 10));
}

TEST_F(RangeCacheTest, FetchesLittleMoreThanARandomReadAsksFor) {
  Make(64 * kMiB, 1000 * kMiB);
  for (size_t i = 1; i <= 100; ++i) ASSERT_TRUE(IsRight(i * 9 * kMiB + i * 4099, 4096));
  AwaitIdle();
  EXPECT_LE(server_->requested(), uint64_t{100} * 2 * kBlockSize);
}

TEST_F(RangeCacheTest, ReadsInOrderWithFewLongRequests) {
  Make(256 * kMiB, 100 * kMiB);
  for (size_t offset = 0; offset < 100 * kMiB; offset += 128 << 10) {
    ASSERT_TRUE(IsRight(offset, 128 << 10));
  }
  AwaitIdle();
  // On a busy machine, a thread may send its request late, and have it repeated as unanswered.
  EXPECT_GE(server_->requested(), 100 * kMiB);
  EXPECT_LE(server_->requested(), 101 * kMiB);
  EXPECT_LE(server_->requests(), 200U);
}

// Has lost all of its object but the first three blocks.
class BreakingServer final : public RemoteObject {
 public:
  std::string name() const override { return "test://object"; }
  uint64_t size() const override { return 8 * kBlockSize; }
  std::string identity() const override { return "test://object v1"; }

  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& /*stop*/) const override {
    const uint64_t end = std::min<uint64_t>(offset + length, 3 * kBlockSize);
    while (offset < end) {
      const auto room = delivery.room();
      for (std::byte& byte : room) byte = ByteAt(offset++);
      delivery.Arrived(room.size());
    }
    Fail(EIO, "the server has gone");
  }
};

// Records the written blocks.
class NotedDisk final : public DiskObject {
 public:
  std::vector<bool> Read(uint64_t /*first*/,
                         std::span<const std::span<std::byte>> blocks) const override {
    return std::vector<bool>(blocks.size());
  }

  void Write(uint64_t first,
             std::span<const std::span<const std::byte>> blocks) const noexcept override {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < blocks.size(); ++i) written_.push_back(first + i);
  }

  std::vector<uint64_t> written() const {
    const std::lock_guard lock(mutex_);
    return written_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<uint64_t> written_;
};

TEST(RangeCache, KeepsOnTheDiskWhatHasComeBeforeAFault) {
  auto disk = std::make_shared<NotedDisk>();
  const auto cache = std::make_shared<RangeCache>(
      RangeCache::Settings{.memory = RangeCache::kLeastMemory,
                           .open_on_disk = [&](std::string_view, uint64_t) { return disk; }});
  const auto source = cache->Add(std::make_shared<BreakingServer>());
  std::vector<std::byte> buffer(8 * kBlockSize);
  EXPECT_THAT([&] { source->ReadAt(0, buffer); }, ThrowsMessage<Error>("the server has gone"));
  EXPECT_THAT(disk->written(), ::testing::IsSupersetOf({0, 1, 2}));
}

// A disk that has all blocks.
class FullDisk final : public DiskObject {
 public:
  std::vector<bool> Read(uint64_t /*first*/,
                         std::span<const std::span<std::byte>> blocks) const override {
    for (const auto& block : blocks) std::ranges::fill(block, std::byte{7});
    return std::vector<bool>(blocks.size(), true);
  }
  void Write(uint64_t /*first*/,
             std::span<const std::span<const std::byte>> /*blocks*/) const noexcept override {}
};

class LargeServer final : public RemoteObject {
 public:
  std::string name() const override { return "test://object"; }
  uint64_t size() const override { return uint64_t{1} << 40U; }
  std::string identity() const override { return "1"; }
  void Fetch(uint64_t /*offset*/, uint64_t /*length*/, Delivery& /*delivery*/,
             const std::stop_token& /*stop*/) const override {
    Fail(EREMOTEIO, "the server is not asked");
  }
};

TEST(RangeCache, DoesNotTakeReadsFromTheDiskForASilentServer) {
  using std::chrono::steady_clock;
  const auto cache = std::make_shared<RangeCache>(RangeCache::Settings{
      .memory = RangeCache::kLeastMemory,
      .timeout = std::chrono::milliseconds(200),
      .open_on_disk = [](std::string_view, uint64_t) { return std::make_shared<FullDisk>(); }});
  const auto source = cache->Add(std::make_shared<LargeServer>());
  std::vector<std::byte> buffer(4096);
  const auto end = steady_clock::now() + std::chrono::milliseconds(2500);
  for (uint64_t i = 0; steady_clock::now() < end; ++i) {
    ASSERT_NO_THROW(source->ReadAt(i % 8000 * 4000 * kBlockSize, buffer));
  }
}

}  // namespace
}  // namespace ckptfs
