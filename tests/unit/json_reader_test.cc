#include "parser/codec/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "parser/codec/json_copy.h"
#include "parser/error.h"
#include "parser/layer/memory.h"

namespace ckptfs::json {
namespace {

using std::string_literals::operator""s;

// What a text is when it is written again; or why it cannot be read.
std::string Rewritten(const std::string& text) try {
  Budget budget = Budget::ForFile(text.size());
  Copy copy;
  Read(MemorySource(text), 0, text.size(), budget, copy);
  EXPECT_EQ(budget.used(), 0U);
  return copy.json();
} catch (const Error& e) {
  return e.what();
}

TEST(JsonReader, TellsEverythingInItsOrder) {
  EXPECT_EQ(Rewritten(R"( {"b" : [1, {"x":[]}, -2, 1.50, 1e3] , "a":{"t":true,"f":false,"n":null},
                           "":"text"} )"),
            R"({"b":[1,{"x":[]},-2,1.50,1e3],"a":{"t":true,"f":false,"n":null},"":"text"})");
}

TEST(JsonReader, TellsAValueThatIsNoObject) { EXPECT_EQ(Rewritten(" 7 "), "7"); }

TEST(JsonReader, KeepsTheLargestNumbers) {
  EXPECT_EQ(Rewritten("[18446744073709551615,18446744073709551616,-9223372036854775809,-0]"),
            "[18446744073709551615,18446744073709551616,-9223372036854775809,-0]");
}

TEST(JsonReader, DecodesEscapes) {
  EXPECT_EQ(Rewritten(R"(["\u0041\/\ud83d\ude00\u0000é"])"), R"(["A/\ud83d\ude00\u0000\u00e9"])");
}

TEST(JsonReader, ReadsItsPartOfASource) {
  Budget budget = Budget::ForFile(0);
  Copy copy;
  Read(MemorySource("xx[1]yy"), 2, 3, budget, copy);
  EXPECT_EQ(copy.json(), "[1]");
}

TEST(JsonReader, ReadsTextsThatAreLongerThanItsBuffer) {
  const std::string text =
      "[\"" + std::string(200'000, 'x') + "\",\"" + std::string(70'000, 'y') + "\"]";
  EXPECT_EQ(Rewritten(text), text);
}

TEST(JsonReader, TellsWhereATextStopsBeingJson) {
  EXPECT_EQ(Rewritten(R"({"a":1,})"), "no JSON at byte 7, near '1,}'");
}

TEST(JsonReader, TellsThatATextIsNotComplete) {
  EXPECT_EQ(Rewritten(R"({"a":[1)"), "the JSON is not complete at byte 7, its end");
}

TEST(JsonReader, RefusesNoTextAtAll) {
  EXPECT_EQ(Rewritten(""), "the JSON is not complete at byte 0, its end");
}

TEST(JsonReader, RefusesASecondValue) {
  EXPECT_EQ(Rewritten("{} {}"), "no JSON at byte 3, near '{} {'");
}

TEST(JsonReader, RefusesAByteOrderMark) {
  EXPECT_EQ(Rewritten("\xEF\xBB\xBF{}"), "no JSON at byte 0: there is a byte order mark");
}

TEST(JsonReader, RefusesANulBehindTheValue) {
  EXPECT_EQ(Rewritten("{}\0"s), "no JSON at byte 2: there is a NUL");
}

TEST(JsonReader, RefusesBytesThatAreNoUtf8) {
  EXPECT_EQ(Rewritten("[\"\xC0\xAF\"]"), "no JSON at byte 2, near '\"?'");
}

TEST(JsonReader, RefusesHalfOfASurrogatePair) {
  EXPECT_EQ(Rewritten(R"(["\ud800"])"), R"(no JSON at byte 8, near '"\ud800"')");
}

TEST(JsonReader, RefusesANumberThatNoDoubleHolds) {
  EXPECT_EQ(Rewritten("[1e999]"), "the number '1e999' before byte 6 is too large");
}

TEST(JsonReader, RefusesAKeyThatOccursTwiceInAnObject) {
  EXPECT_EQ(Rewritten(R"({"a":1,"b":{},"\u0061":2})"), "'a' occurs twice");
}

TEST(JsonReader, TakesAKeyTwiceInDifferentObjects) {
  EXPECT_EQ(Rewritten(R"({"a":{"a":{"b":1}},"b":[{"a":1},{"a":2}]})"),
            R"({"a":{"a":{"b":1}},"b":[{"a":1},{"a":2}]})");
}

TEST(JsonReader, FindsAKeyThatOccursTwiceAroundAnotherObject) {
  EXPECT_EQ(Rewritten(R"([{"x":1,"y":{"x":2,"z":3},"x":4}])"), "'x' occurs twice");
}

TEST(JsonReader, ReadsSixtyFourLevels) {
  const std::string text = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(Rewritten(text), text);
}

TEST(JsonReader, RefusesSixtyFiveLevels) {
  EXPECT_EQ(Rewritten(std::string(65, '[') + std::string(65, ']')), "is nested more than 64 deep");
}

TEST(JsonReader, ChargesKeysToTheBudget) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += '"' + std::to_string(i) + "\":0,";
  text.back() = '}';
  Budget budget(10'000);
  Copy copy;
  EXPECT_THROW(Read(MemorySource(text), 0, text.size(), budget, copy), Error);
}

}  // namespace
}  // namespace ckptfs::json
