#include "parser/layer/deferred_offset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/strided.h"
#include "parser/layer/verified.h"
#include "tests/support/counting_source.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

// The header at byte 1 is one digit, the distance of the data from it. The data are four
// bytes, expected at byte 2.
ByteSourcePtr DeferredOffset(const ByteSourcePtr& file) {
  return MakeDeferredOffset({file, 2, 4}, {.offset = 1, .length = 1},
                            [](std::span<const std::byte> header) -> uint64_t {
                              const int digit = std::to_integer<int>(header[0]) - '0';
                              if (digit < 0 || digit > 9) Fail(EBADMSG, "its header is no digit");
                              return 1 + static_cast<uint64_t>(digit);
                            });
}

ByteSourcePtr DeferredOffset(const std::string& file) {
  return DeferredOffset(std::make_shared<MemorySource>(file));
}

TEST(DeferredOffset, ReadsDataAtTheProvisionalOffset) {
  EXPECT_EQ(ReadString(*DeferredOffset("-1abcdefgh"), 2, 4), "abcd");
}

TEST(DeferredOffset, ReadsDataAtAnotherOffset) {
  EXPECT_EQ(ReadString(*DeferredOffset("-3abcdefgh"), 3, 3), "def");
}

TEST(DeferredOffset, ReadsAtOnceWhatTakesNoLonger) {
  std::string text(3, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  EXPECT_TRUE(DeferredOffset("-3abcdefgh")->TryReadAt(6, bytes)) << "not of the data";
  EXPECT_EQ(text, "efg");
  EXPECT_TRUE(DeferredOffset("-3abcdefgh")->TryReadAt(3, bytes));
  EXPECT_EQ(text, "def");
}

TEST(DeferredOffset, ReadsNothingAtOnceWithoutItsHeader) {
  const auto file = std::make_shared<CountingSource>(std::make_shared<MemorySource>("-3abcdefgh"));
  const ByteSourcePtr source = DeferredOffset(file);
  std::string text(3, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  EXPECT_FALSE(source->TryReadAt(3, bytes)) << "a CountingSource may take long";
  EXPECT_EQ(ReadString(*source, 3, 3), "def");
  EXPECT_THAT([&] { DeferredOffset("-xabcdefgh")->TryReadAt(3, bytes); },
              ThrowsMessage<Error>("its header is no digit"));
}

TEST(DeferredOffset, ReadsPiecesThatAreElsewhere) {
  std::string text(2, '\0');
  DeferredOffset("-3abcdefgh")->ReadPiecesAt(2, 2, 1, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "ce");
}

TEST(DeferredOffset, ReadsAllElseWhereItIs) {
  EXPECT_EQ(ReadString(*DeferredOffset("-3abcdefgh"), 6, 4), "efgh");
}

TEST(DeferredOffset, GivesNothingBehindABadHeader) {
  const ByteSourcePtr source = DeferredOffset("-xabcdefgh");
  EXPECT_THAT([&] { ReadString(*source, 2, 1); }, ThrowsMessage<Error>("its header is no digit"));
  EXPECT_THAT([&] { ReadString(*source, 2, 1); }, ThrowsMessage<Error>("its header is no digit"));
}

// A source of 200 zeros, and the files it was advised of, as a text.
class AdvisedZeros {
 public:
  AdvisedZeros()
      : source_(std::make_shared<CountingSource>(
            std::make_shared<MemorySource>(std::string(200, '\0')))) {}

  const std::shared_ptr<CountingSource>& source() const { return source_; }

  std::string text() const {
    std::string text;
    for (const ByteRange& range : source_->expected()) {
      text += fmt::format("[{} {}]", range.offset, range.length);
    }
    return text;
  }

 private:
  std::shared_ptr<CountingSource> source_;
};

TEST(Layers, TranslateAdviceThroughASlice) {
  const AdvisedZeros zeros;
  const Slice slice({zeros.source(), 100, 50});
  slice.AdviseFile({.offset = 10, .length = 20});
  EXPECT_TRUE(slice.is_remote());
  EXPECT_EQ(zeros.text(), "[110 20]");
}

TEST(Layers, AdviseTheRangeOfATransposedTensor) {
  const AdvisedZeros zeros;
  const auto strided =
      MakeStrided({zeros.source(), 100, 24},
                  {.dtype = Dtype::kUint8, .shape = {3, 2}, .stride = {1, 10}}, nullptr);
  strided->AdviseFile({.offset = 0, .length = 6});
  EXPECT_TRUE(strided->is_remote());
  EXPECT_EQ(zeros.text(), "[100 13]");
}

}  // namespace
}  // namespace ckptfs
