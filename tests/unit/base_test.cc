// The base of all other rooms: errors, text, fields of bytes, budgets, JSON.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "tests/support/errors.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Printable, LeavesTextAsItIs) { EXPECT_EQ(Printable("layer.0 'ä' € 𝄞"), "layer.0 'ä' € 𝄞"); }

TEST(Printable, ReplacesWhatCommandsATerminal) {
  EXPECT_EQ(Printable("a\nb\x1b[31m\x7f\tc"), "a?b?[31m??c");
}

TEST(Printable, ReplacesNul) { EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a?b"); }

TEST(Printable, ReplacesControlsOfTwoBytes) { EXPECT_EQ(Printable("a\u0085\u009bb"), "a??b"); }

TEST(Printable, ReplacesLineEndsOfUnicode) { EXPECT_EQ(Printable("a\u2028b\u2029c"), "a?b?c"); }

TEST(Printable, ReplacesMarksThatTurnTheDirectionOfWriting) {
  EXPECT_EQ(Printable("\u061c\u200e\u200f\u202a\u202e\u2066\u2069"), "???????");
}

TEST(Printable, ReplacesEachByteThatIsNoUtf8) {
  EXPECT_EQ(Printable("a\xff\xc3z\xe2\x82"), "a??z??");
}

TEST(Error, HasACodeAndASentence) {
  const Error e(ESTALE, "the file has changed");
  EXPECT_EQ(e.code(), ESTALE);
  EXPECT_STREQ(e.what(), "the file has changed");
}

TEST(Error, IsPrintableWhateverItIsMadeOf) {
  EXPECT_STREQ(Error(EIO, "\x1b]0;title\a: gone").what(), "?]0;title?: gone");
}

TEST(Error, IsFormatted) {
  EXPECT_THAT([] { Fail(EBADMSG, "{} bytes, but {} are left", 7, 3); },
              ThrowsMessage<Error>("7 bytes, but 3 are left"));
  EXPECT_EQ(CodeOf([] { Fail(EBADMSG, "no"); }), EBADMSG);
}

TEST(Error, IncludesTheErrorTextOfTheSystem) {
  const auto fail = [] {
    errno = ENOENT;
    FailErrno("cannot open {}", "x");
  };
  EXPECT_THAT(fail, ThrowsMessage<Error>("cannot open x: No such file or directory"));
  EXPECT_EQ(CodeOf(fail), ENOENT);
}

TEST(Error, IsTransientIfTheFileMayBeIntact) {
  EXPECT_TRUE(IsTransient(EMFILE));
  EXPECT_TRUE(IsTransient(ENFILE));
  EXPECT_TRUE(IsTransient(ENOMEM));
  EXPECT_TRUE(IsTransient(EREMOTEIO));
  EXPECT_TRUE(IsTransient(ETIMEDOUT));
  EXPECT_TRUE(IsTransient(ECONNREFUSED));
  EXPECT_FALSE(IsTransient(EACCES));
  EXPECT_FALSE(IsTransient(EIO));
  EXPECT_FALSE(IsTransient(ENOENT));
  EXPECT_FALSE(IsTransient(EBADMSG));
}

TEST(Error, KeepsItsCodeWithAContext) {
  const Error e = WithContext("model.pth", Error(EBADMSG, "too short"));
  EXPECT_EQ(e.code(), EBADMSG);
  EXPECT_STREQ(e.what(), "model.pth: too short");
}

TEST(Quoted, PutsTextBetweenQuotes) { EXPECT_EQ(Quoted("a.b"), "'a.b'"); }

TEST(Quoted, IsPrintable) { EXPECT_EQ(Quoted("a\nb"), "'a?b'"); }

TEST(Quoted, ShowsAHundredBytesWhole) {
  EXPECT_EQ(Quoted(std::string(100, 'a')), "'" + std::string(100, 'a') + "'");
}

TEST(Quoted, ShortensMore) {
  EXPECT_EQ(Quoted(std::string(101, 'a')), "'" + std::string(100, 'a') + "...'");
}

TEST(Quoted, CutsNoCharacterInTwo) {
  EXPECT_EQ(Quoted(std::string(97, 'a') + "𝄞𝄞"), "'" + std::string(97, 'a') + "...'");
  EXPECT_EQ(Quoted(std::string(96, 'a') + "𝄞𝄞"), "'" + std::string(96, 'a') + "𝄞...'");
}

TEST(Quoted, EndsForBytesThatAreNoText) {
  EXPECT_EQ(Quoted(std::string(200, '\x80')), "'" + std::string(96, '?') + "...'");
}

TEST(Utf8, DecodesCharactersOfEachLength) {
  const auto decoded = [](std::string_view text) {
    const utf8::Character c = utf8::Decode(text);
    return std::tuple(c.code, c.length, c.is_valid);
  };
  EXPECT_EQ(decoded(std::string_view("\0", 1)), std::tuple(0, 1, true));
  EXPECT_EQ(decoded("\x7fz"), std::tuple(0x7f, 1, true));
  EXPECT_EQ(decoded("\xc2\x80z"), std::tuple(0x80, 2, true));
  EXPECT_EQ(decoded("\xdf\xbf"), std::tuple(0x7ff, 2, true));
  EXPECT_EQ(decoded("\xe0\xa0\x80"), std::tuple(0x800, 3, true));
  EXPECT_EQ(decoded("\xed\x9f\xbf"), std::tuple(0xd7ff, 3, true));
  EXPECT_EQ(decoded("\xee\x80\x80"), std::tuple(0xe000, 3, true));
  EXPECT_EQ(decoded("\xef\xbf\xbf"), std::tuple(0xffff, 3, true));
  EXPECT_EQ(decoded("\xf0\x90\x80\x80"), std::tuple(0x10000, 4, true));
  EXPECT_EQ(decoded("\xf4\x8f\xbf\xbf"), std::tuple(0x10ffff, 4, true));
}

TEST(Utf8, SkipsOneInvalidByte) {
  EXPECT_EQ(utf8::Decode("\xe2\x82(").length, 1U);
  EXPECT_FALSE(utf8::Decode("\xe2\x82(").is_valid);
}

TEST(Utf8, IsNotValidIfOverlong) {
  EXPECT_FALSE(utf8::IsValid("\xc0\x80"));
  EXPECT_FALSE(utf8::IsValid("\xc1\xbf"));
  EXPECT_FALSE(utf8::IsValid("\xe0\x9f\xbf"));
  EXPECT_FALSE(utf8::IsValid("\xf0\x8f\xbf\xbf"));
}

TEST(Utf8, IsNotValidWithSurrogates) {
  EXPECT_FALSE(utf8::IsValid("\xed\xa0\x80"));
  EXPECT_FALSE(utf8::IsValid("\xed\xbf\xbf"));
}

TEST(Utf8, IsNotValidAboveTheLastCharacter) {
  EXPECT_FALSE(utf8::IsValid("\xf4\x90\x80\x80"));
  EXPECT_FALSE(utf8::IsValid("\xf5\x80\x80\x80"));
  EXPECT_FALSE(utf8::IsValid("\xff"));
}

TEST(Utf8, IsNotValidIfCutOff) {
  EXPECT_FALSE(utf8::IsValid("a\xc3"));
  EXPECT_FALSE(utf8::IsValid("a\xe2\x82"));
  EXPECT_FALSE(utf8::IsValid("a\xf0\x9d\x84"));
}

TEST(Utf8, IsNotValidIfItBeginsWithinACharacter) { EXPECT_FALSE(utf8::IsValid("\x80")); }

TEST(Utf8, IsValidIfAllOfItIs) {
  EXPECT_TRUE(utf8::IsValid(""));
  EXPECT_TRUE(utf8::IsValid("aä€𝄞"));
  EXPECT_FALSE(utf8::IsValid("aä€𝄞\xff"));
}

TEST(ByteReader, ReadsFieldsOneAfterTheOther) {
  ByteReader reader("header", Bytes("\x01\x02\x03\x04\xff\xffname"));
  EXPECT_EQ(reader.Read<uint32_t>("magic"), 0x04030201U);
  EXPECT_EQ(reader.Read<int16_t>("length"), -1);
  EXPECT_EQ(reader.TakeText(4, "name"), "name");
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_EQ(reader.offset(), 10U);
}

TEST(ByteReader, NamesTheFieldThatIsTruncated) {
  ByteReader reader("header", Bytes("abcde"));
  reader.Read<uint32_t>("magic");
  EXPECT_THAT([&] { reader.Read<uint16_t>("version"); },
              ThrowsMessage<Error>("header at byte 4: version needs 2 bytes, but only 1 are left"));
  EXPECT_EQ(CodeOf([&] { reader.Read<uint16_t>("version"); }), EBADMSG);
}

TEST(ByteReader, StaysWhereItIsIfItCannotRead) {
  ByteReader reader("header", Bytes("abc"));
  EXPECT_ANY_THROW(reader.Read<uint32_t>("magic"));
  EXPECT_EQ(reader.offset(), 0U);
}

TEST(ByteReader, CountsFromItsBase) {
  ByteReader reader("directory", Bytes("abc"), 1000);
  reader.Take(1, "tag");
  EXPECT_EQ(reader.position(), 1001U);
  EXPECT_THAT(
      [&] { reader.Take(3, "name"); },
      ThrowsMessage<Error>("directory at byte 1001: name needs 3 bytes, but only 2 are left"));
}

TEST(ByteReader, RefusesALengthThatNothingHas) {
  ByteReader reader("header", Bytes("abc"));
  reader.Take(1, "tag");
  EXPECT_THAT([&] { reader.Take(~uint64_t{0}, "name"); },
              ThrowsMessage<Error>(
                  "header at byte 1: name needs 18446744073709551615 bytes, but only 2 are left"));
}

TEST(ByteReader, TakesNothingAtTheEnd) {
  ByteReader reader("header", {});
  EXPECT_TRUE(reader.Take(0, "name").empty());
}

TEST(Budget, AllowsItsLimit) {
  Budget budget(100);
  budget.Charge(60);
  budget.Charge(40);
  EXPECT_EQ(budget.used(), 100U);
}

TEST(Budget, RefusesAByteMore) {
  Budget budget(uint64_t{3} << 20);
  budget.Charge(uint64_t{3} << 20);
  EXPECT_THAT([&] { budget.Charge(1); },
              ThrowsMessage<Error>(
                  "parsing needs more than 3 MiB of memory, the limit for a file of this size"));
  EXPECT_EQ(CodeOf([&] { budget.Charge(1); }), EFBIG);
}

TEST(Budget, RefusesWhatWouldOverflow) {
  Budget budget(100);
  budget.Charge(50);
  EXPECT_EQ(CodeOf([&] { budget.Charge(~uint64_t{0}); }), EFBIG);
  EXPECT_EQ(budget.used(), 50U);
}

TEST(Budget, CanSpendRefundsAgain) {
  Budget budget(100);
  budget.Charge(100);
  budget.Refund(30);
  budget.Charge(30);
  EXPECT_EQ(budget.used(), 100U);
}

TEST(Budget, CountsWhatContainersAllocate) {
  Budget budget(10000);
  {
    std::pmr::vector<uint64_t> numbers(&budget);
    numbers.reserve(1000);
    EXPECT_EQ(budget.used(), 8000U);
    EXPECT_EQ(CodeOf([&] { numbers.reserve(2000); }), EFBIG);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST(Budget, RefusesMoreStepsThanHonestFilesNeed) {
  Budget budget = Budget::ForFile(1'000'000);
  budget.Work(20'194'304);
  EXPECT_THAT([&] { budget.Work(1); },
              testing::ThrowsMessage<Error>(
                  "parsing takes more than 20194304 steps, the limit for a file of this size"));
  EXPECT_EQ(CodeOf([&] { budget.Work(~uint64_t{0}); }), EFBIG);
  EXPECT_TRUE(budget.is_spent());
}

TEST(Budget, GrowsWithTheFile) {
  EXPECT_EQ(Budget::ForFile(0).limit(), uint64_t{32} << 20);
  EXPECT_EQ(Budget::ForFile(1000).limit(), (uint64_t{32} << 20) + 16000);
}

TEST(Budget, IsNeverMoreThan16GiB) {
  EXPECT_EQ(Budget::ForFile(uint64_t{1} << 30).limit(), uint64_t{16} << 30);
  EXPECT_EQ(Budget::ForFile(~uint64_t{0}).limit(), uint64_t{16} << 30);
}

TEST(Budget, GrowsWithParsedBytesOnly) {
  Budget budget;
  budget.AddFile(uint64_t{1} << 40, false);
  EXPECT_EQ(budget.limit(), uint64_t{32} << 20);
  budget.Grow(1000);
  EXPECT_EQ(budget.limit(), (uint64_t{32} << 20) + 16000);
}

TEST(Budget, GrowsNoMoreThanAllFilesHave) {
  Budget budget;
  budget.AddFile(1000, false);
  budget.AddFile(500, false);
  budget.Grow(1200);
  budget.Grow(uint64_t{1} << 40);
  EXPECT_EQ(budget.limit(), (uint64_t{32} << 20) + uint64_t{1500} * 16);
}

TEST(Budget, IsNeverMoreThan1GiBForWhatAServerHas) {
  Budget budget;
  budget.AddFile(~uint64_t{0}, true);
  budget.Grow(~uint64_t{0});
  EXPECT_EQ(budget.limit(), uint64_t{1} << 30);
}

TEST(Budget, EndsAtItsDeadline) {
  Budget budget;
  budget.SetTime(std::chrono::milliseconds(10));
  EXPECT_NO_THROW(budget.Work(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_THAT([&] { budget.Work(10'000); },
              ThrowsMessage<Error>(
                  "parsing takes longer than 0 s, the limit for a checkpoint of this size"));
}

TEST(Budget, GivesASecondForEach16MiBThatAreParsed) {
  Budget budget;
  budget.AddFile(uint64_t{1} << 30, false);
  budget.SetTime(std::chrono::seconds(60));
  const auto before = budget.deadline();
  budget.Grow(uint64_t{64} << 20);
  EXPECT_EQ(budget.deadline() - before, std::chrono::seconds(4));
}

TEST(Metering, CountsWhatContainersAllocate) {
  if (!kIsMetered) GTEST_SKIP() << "this is not possible here: a sanitizer has its own new";
  Budget budget(1'000'000);
  const auto allocate = [&](size_t size) {
    return Metered(budget, [&] { return std::string(size, 'x').size(); });
  };
  EXPECT_EQ(allocate(500'000), 500'000U);
  EXPECT_EQ(allocate(900'000), 900'000U) << "what was freed counts no more";
  EXPECT_GE(budget.most_metered(), 900'000U);
  EXPECT_EQ(budget.used(), 0U);
  EXPECT_THAT([&] { allocate(2'000'000); },
              ThrowsMessage<Error>(
                  "parsing needs more than 0 MiB of memory, the limit for a file of this size"));
}

TEST(Metering, CountsAllocationsAsWork) {
  if (!kIsMetered) GTEST_SKIP() << "this is not possible here: a sanitizer has its own new";
  Budget budget;
  const auto fill = [&] {
    while (true) std::string(1000, 'x').swap(*std::make_unique<std::string>());
  };
  EXPECT_THAT([&] { Metered(budget, fill); },
              ThrowsMessage<Error>(testing::StartsWith("parsing takes more")));
}

TEST(Metering, EndsWithItsScope) {
  Budget budget(1'000);
  Metered(budget, [] { return 0; });
  EXPECT_NO_THROW(std::string(1'000'000, 'x'));
}

TEST(Json, QuotesText) { EXPECT_EQ(json::String("layer.0"), R"("layer.0")"); }

TEST(Json, EscapesSpecialCharacters) {
  EXPECT_EQ(json::String("a\"b\\c\nd\te"), R"("a\"b\\c\nd\te")");
}

TEST(Json, EscapesControls) {
  EXPECT_EQ(json::String(std::string_view("\0\x1f\x7f\r", 4)), R"("\u0000\u001f\u007f\u000d")");
}

TEST(Json, EscapesAllThatIsNotAscii) { EXPECT_EQ(json::String("ä€"), R"("\u00e4\u20ac")"); }

TEST(Json, EscapesLargeCharactersAsTwo) { EXPECT_EQ(json::String("𝄞"), R"("\ud834\udd1e")"); }

TEST(Json, KeepsASurrogateThatIsAlone) {
  EXPECT_EQ(json::String("a\xed\xa0\x80z"), R"("a\ud800z")");
  EXPECT_EQ(json::String("\xed\xbf\xbf"), R"("\udfff")");
}

TEST(Json, ReplacesEachByteThatIsNoUtf8) {
  EXPECT_EQ(json::String("\xff\xed\xa0"), R"("\ufffd\ufffd\ufffd")");
}

std::string Double(double number) {
  std::string out = "[";
  json::AppendDouble(out, number);
  return out;
}

TEST(Json, WritesNumbersThatReadBackAsTheSame) {
  EXPECT_EQ(Double(0.1), "[0.1");
  EXPECT_EQ(Double(1.0 / 3), "[0.3333333333333333");
  EXPECT_EQ(Double(-5e-324), "[-5e-324");
  EXPECT_EQ(Double(1.7976931348623157e308), "[1.7976931348623157e+308");
}

TEST(Json, WritesWholeNumbersAsFloats) {
  EXPECT_EQ(Double(3), "[3.0");
  EXPECT_EQ(Double(-0.0), "[-0.0");
  EXPECT_EQ(Double(1e15), "[1000000000000000.0");
}

TEST(Json, WritesNanAndInfinityAsText) {
  EXPECT_EQ(Double(std::nan("")), R"(["NaN")");
  EXPECT_EQ(Double(INFINITY), R"(["Infinity")");
  EXPECT_EQ(Double(-INFINITY), R"(["-Infinity")");
}

}  // namespace
}  // namespace ckptfs
