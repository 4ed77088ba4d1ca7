// Cancelled reads, and reads that take turns.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/io/byte_source.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/block_cache.h"
#include "parser/layer/decompressed.h"
#include "parser/layer/verified.h"
#include "tests/support/compressors.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using testing::Property;
using testing::Throws;

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint64_t kMuchScratch = uint64_t{1} << 30;

auto IsInterrupted() { return Throws<Error>(Property(&Error::code, EINTR)); }

std::shared_ptr<Decoding> NewDecoding(uint64_t scratch = kMuchScratch) {
  return std::make_shared<Decoding>(std::make_shared<BlockCache>(),
                                    std::make_shared<ScratchSpace>(scratch));
}

// Runs `read` for a reader that gives up after being asked `times` times.
void GiveUpAfter(int times, const std::function<void()>& read) {
  const Cancellation::IsCancelled is_cancelled = [&times] { return times-- <= 0; };
  const Cancellation interruption(is_cancelled);
  read();
}

// Repeats `read` until it is not preempted; returns how often it was.
int TakeTurns(const std::function<void()>& read) {
  const Cancellation::IsCancelled never = [] { return false; };
  const Cancellation::IsPreempted always = [](bool) { return true; };
  const Cancellation interruption(never, &always);
  for (int turns = 0;; ++turns) {
    try {
      read();
      return turns;
    } catch (const Preempted&) {  // The next one.
    }
  }
}

class DecompressedByAnyReader : public testing::TestWithParam<Coding> {
 protected:
  void SetUp() override {
    std::mt19937 random(1);
    for (char& c : text_) c = static_cast<char>(random() & 15);
    compressed_ = CompressedOf(GetParam(), Compress(GetParam(), text_), text_.size());
  }

  ByteSourcePtr Decoded(uint64_t scratch = kMuchScratch) const {
    return MakeDecompressed(compressed_, Crc(text_), NewDecoding(scratch));
  }

  std::string text_ = std::string(3 * kMiB + 5, '\0');
  Compressed compressed_;
};

INSTANTIATE_TEST_SUITE_P(Codings, DecompressedByAnyReader,
                         testing::Values(Coding::kDeflate, Coding::kBzip2, Coding::kLzma),
                         [](const auto& coding) { return std::string(NameOf(coding.param)); });

TEST_P(DecompressedByAnyReader, StopsIfItIsCancelledAndLeavesNoCorruptState) {
  const auto source = Decoded();
  for (int times = 0; times < 2; ++times) {
    GiveUpAfter(0, [&] {
      EXPECT_THAT([&] { ReadString(*source, text_.size() - 1, 1); }, IsInterrupted());
    });
    EXPECT_EQ(source->verdict(), Verdict::kUnread);
  }
  EXPECT_TRUE(ReadString(*source, 0, text_.size()) == text_);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST_P(DecompressedByAnyReader, GoesOnWhereAnotherOneHasStopped) {
  const auto source = Decoded();
  EXPECT_EQ(TakeTurns([&] { EXPECT_EQ(ReadString(*source, text_.size() - 1, 1).size(), 1U); }), 3);
  EXPECT_TRUE(ReadString(*source, 0, text_.size()) == text_);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST_P(DecompressedByAnyReader, ComesToTheEndInTurnsWithoutATemporaryFile) {
  const auto source = Decoded(0);
  TakeTurns([&] { EXPECT_TRUE(ReadString(*source, 0, text_.size()) == text_); });
  TakeTurns([&] { EXPECT_TRUE(ReadString(*source, 3, kMiB) == text_.substr(3, kMiB)); });
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST_P(DecompressedByAnyReader, LeavesTheFirstPassToAWaiter) {
  const auto source = Decoded();
  {
    std::vector<std::jthread> threads;
    for (int times = 1; times <= 3; ++times) {
      threads.emplace_back([&, times] {
        GiveUpAfter(times, [&] {
          try {
            ReadString(*source, text_.size() - 1, 1);
          } catch (const Error& e) {
            EXPECT_EQ(e.code(), EINTR);
          }
        });
      });
      threads.emplace_back([&] { EXPECT_TRUE(ReadString(*source, 0, text_.size()) == text_); });
    }
  }
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

// Fills a block with 'x' in a thread, once it is released; or fails.
class SlowFill {
 public:
  SlowFill(BlockCache& cache, const BlockCache::Key& key, bool fails)
      : thread_([this, &cache, key, fails] {
          char byte = 0;
          const auto fill = [&](std::span<std::byte> block) {
            begun_.set_value();
            may_end_.get_future().wait();
            if (fails) Fail(EINTR, "interrupted");
            std::ranges::fill(block, std::byte{'x'});
          };
          try {
            cache.Read(key, 4, 0, std::as_writable_bytes(std::span(&byte, 1)), fill);
            EXPECT_EQ(byte, 'x');
          } catch (const Error&) {
            EXPECT_TRUE(fails);
          }
        }) {
    begun_.get_future().wait();
  }

  void LetGo() { may_end_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> may_end_;
  std::jthread thread_;
};

TEST(BlockCacheReader, StopsWaitingForTheFillOfAnother) {
  BlockCache cache;
  const BlockCache::Key key{.owner = cache.NewOwner(), .index = 0};
  SlowFill fill(cache, key, false);
  std::byte byte{};
  const auto no_fill = [](std::span<std::byte>) { ADD_FAILURE(); };
  GiveUpAfter(0, [&] {
    EXPECT_THAT([&] { cache.Read(key, 4, 0, {&byte, 1}, no_fill); }, IsInterrupted());
  });
  fill.LetGo();
  EXPECT_TRUE(cache.Read(key, 4, 1, {&byte, 1}, no_fill));
  EXPECT_EQ(byte, std::byte{'x'});
}

TEST(BlockCacheReader, FillsABlockWhoseFillWasCancelled) {
  BlockCache cache;
  const BlockCache::Key key{.owner = cache.NewOwner(), .index = 0};
  SlowFill fill(cache, key, true);
  std::jthread letting_go([&] {
    std::this_thread::sleep_for(milliseconds(30));
    fill.LetGo();
  });
  std::byte byte{};
  EXPECT_TRUE(cache.Read(key, 4, 0, {&byte, 1}, [](std::span<std::byte> block) {
    std::ranges::fill(block, std::byte{'y'});
  }));
  EXPECT_EQ(byte, std::byte{'y'});
}

TEST(BlockCacheReader, StopsWaitingForItsTurn) {
  BlockCache cache(1);
  std::byte byte{};
  cache.ReadAlone(4, 0, {&byte, 1}, [&](std::span<std::byte>) {
    std::jthread([&] {
      GiveUpAfter(0, [&] {
        std::byte other{};
        EXPECT_THAT(
            [&] {
              cache.ReadAlone(4, 0, {&other, 1}, [](std::span<std::byte>) {});
            },
            IsInterrupted());
      });
    }).join();
  });
}

TEST(DecompressorPoolReader, StopsWaitingForMemory) {
  const Compressed compressed =
      CompressedOf(Coding::kDeflate, Compress(Coding::kDeflate, "abcd"), 4);
  DecompressorPool decompressors(1);
  auto working = decompressors.Start(std::make_unique<Decompressor>(compressed));
  GiveUpAfter(0, [&] {
    EXPECT_THAT([&] { decompressors.Start(std::make_unique<Decompressor>(compressed)); },
                IsInterrupted());
  });
  working.reset();
  EXPECT_NE(decompressors.Start(std::make_unique<Decompressor>(compressed)), nullptr);
}

TEST(WorkerReader, IsInterruptedIfItsOwnerLeaves) {
  Worker worker;
  std::promise<void> begun;
  worker.Do(1, [&] {
    begun.set_value();
    while (!Cancellation::IsRequested()) std::this_thread::sleep_for(milliseconds(1));
  });
  begun.get_future().wait();
  worker.Cancel(1);
  std::promise<void> done;
  worker.Do(2, [&] {
    EXPECT_FALSE(Cancellation::IsRequested());
    done.set_value();
  });
  done.get_future().wait();
}

TEST(WorkerReader, IsInterruptedAtTheEnd) {
  std::promise<void> begun;
  Worker worker;
  worker.Do(1, [&] {
    begun.set_value();
    while (!Cancellation::IsRequested()) std::this_thread::sleep_for(milliseconds(1));
  });
  begun.get_future().wait();
}

TEST(VerifiedReader, LeavesItToTheNextOneToGoOnHashing) {
  const std::string text(3 * kMiB, 'a');
  const auto verification = std::make_shared<const Verification>(
      Verification{.is_enforced = true, .report = [](auto&&...) {}});
  const auto source = MakeVerified({std::make_shared<MemorySource>(text), 0, text.size()},
                                   {.crc32 = Crc(text)}, {}, "tensor 'w'", verification);
  ReadString(*source, kMiB, 2 * kMiB);
  GiveUpAfter(1, [&] { ReadString(*source, 0, kMiB); });
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  ReadString(*source, 0, 1);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Immediate, IsASourceThatReadsWithoutMuchWork) {
  const auto memory = std::make_shared<MemorySource>("abcd");
  EXPECT_TRUE(memory->is_immediate());
  EXPECT_TRUE(Slice({memory, 1, 2}).is_immediate());
  const Compressed compressed =
      CompressedOf(Coding::kDeflate, Compress(Coding::kDeflate, "abcd"), 4);
  const auto decoded = MakeDecompressed(compressed, 0, NewDecoding());
  EXPECT_FALSE(decoded->is_immediate());
  EXPECT_FALSE(Slice({decoded, 1, 2}).is_immediate());
}

TEST(TryReadAt, ReadsImmediateSources) {
  const auto memory = std::make_shared<MemorySource>("abcd");
  const Compressed compressed =
      CompressedOf(Coding::kDeflate, Compress(Coding::kDeflate, "abcd"), 4);
  std::string read(2, '\0');
  const auto buffer = std::as_writable_bytes(std::span(read));
  ASSERT_TRUE(Slice({memory, 1, 2}).TryReadAt(0, buffer));
  EXPECT_EQ(read, "bc");
  EXPECT_FALSE(Slice({MakeDecompressed(compressed, 0, NewDecoding()), 1, 2}).TryReadAt(0, buffer));
}

TEST(ScratchFile, SharesItsSpaceWithOthers) {
  const auto space = std::make_shared<ScratchSpace>();
  const std::vector<std::byte> bytes(1000);
  ScratchFile one(space);
  EXPECT_FALSE(one.Write(bytes)) << "before anything is allowed";
  space->Allow(2500);
  {
    ScratchFile other(space);
    EXPECT_TRUE(one.Write(bytes));
    EXPECT_TRUE(other.Write(bytes));
    EXPECT_FALSE(one.Write(bytes));
    EXPECT_FALSE(other.Write(bytes));
  }
  EXPECT_TRUE(one.Write(bytes));
  EXPECT_FALSE(one.Write(bytes));
}

}  // namespace
}  // namespace ckptfs
