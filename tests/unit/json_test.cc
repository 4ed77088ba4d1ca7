// JSON: the events of the reader, and the document built from them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "parser/base/error.h"
#include "parser/codec/json_document.h"
#include "parser/codec/json_reader.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::json {
namespace {

using std::string_literals::operator""s;
using Kind = Node::Kind;

// Reads a text and writes it again; returns the error if it cannot be read.
std::string Rewritten(const std::string& text, Dialect dialect = Dialect::kStrict) try {
  Budget budget = Budget::ForFile(text.size());
  Copy copy;
  Read(MemorySource(text), 0, text.size(), budget, copy, dialect);
  EXPECT_EQ(budget.used(), 0U);
  return copy.json();
} catch (const Error& e) {
  return e.what();
}

TEST(JsonReader, ReportsEventsInOrder) {
  EXPECT_EQ(Rewritten(R"( {"b" : [1, {"x":[]}, -2, 1.50, 1e3] , "a":{"t":true,"f":false,"n":null},
                           "":"text"} )"),
            R"({"b":[1,{"x":[]},-2,1.50,1e3],"a":{"t":true,"f":false,"n":null},"":"text"})");
}

TEST(JsonReader, ReadsAValueThatIsNotAnObject) { EXPECT_EQ(Rewritten(" 7 "), "7"); }

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

TEST(JsonReader, ReportsTheByteOfASyntaxError) {
  EXPECT_EQ(Rewritten(R"({"a":1,})"), "invalid JSON at byte 7, near '}'");
}

TEST(JsonReader, ReportsAnUnexpectedEnd) {
  EXPECT_EQ(Rewritten(R"({"a":[1)"), "invalid JSON at byte 7: unexpected end of text");
}

TEST(JsonReader, RefusesNoTextAtAll) {
  EXPECT_EQ(Rewritten(""), "invalid JSON at byte 0: unexpected end of text");
}

TEST(JsonReader, RefusesASecondValue) {
  EXPECT_EQ(Rewritten("{} {}"), "invalid JSON at byte 3, near '{'");
}

TEST(JsonReader, RefusesAByteOrderMark) {
  EXPECT_EQ(Rewritten("\xEF\xBB\xBF{}"), "invalid JSON at byte 0: byte order mark");
}

TEST(JsonReader, RefusesANulBehindTheValue) {
  EXPECT_EQ(Rewritten("{}\0"s), "invalid JSON at byte 2: NUL character");
}

TEST(JsonReader, RefusesBytesThatAreNoUtf8) {
  EXPECT_EQ(Rewritten("[\"\xC0\xAF\"]"), "invalid JSON at byte 2: invalid UTF-8");
}

TEST(JsonReader, RefusesHalfOfASurrogatePair) {
  EXPECT_EQ(Rewritten(R"(["\ud800"])"),
            R"(invalid JSON before byte 8: \ud800 is half of a surrogate pair)");
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

TEST(JsonReader, FindsEachByteOfACharacterThatABlockEndsIn) {
  const std::string text = "[\"" + std::string(65'532, 'x') + "\u20ac\"]";
  const std::string escaped = "[\"" + std::string(65'532, 'x') + "\\u20ac\"]";
  EXPECT_EQ(Rewritten(text), escaped);
}

TEST(JsonReader, RefusesControlCharactersInATextAsPythonDoes) {
  EXPECT_EQ(Rewritten("[\"a\tb\"]", Dialect::kPython), "invalid JSON at byte 3, near '\"a?'");
}

TEST(JsonReader, RejectsAnUnknownEscape) {
  EXPECT_EQ(Rewritten(R"(["\x"])"), R"(invalid JSON at byte 3, near '"x')");
}

TEST(JsonReader, RefusesANumberThatBeginsWithZeros) {
  EXPECT_EQ(Rewritten("[01]"), "invalid JSON at byte 2, near '1'");
}

TEST(JsonReader, RejectsAnUnknownWord) {
  EXPECT_EQ(Rewritten("[trux]"), "invalid JSON at byte 4, near 'trux'");
}

TEST(JsonReader, ChargesALongTextToTheBudget) {
  const std::string text = '"' + std::string(100'000, 'x') + '"';
  Budget budget(10'000);
  Copy copy;
  EXPECT_THROW(Read(MemorySource(text), 0, text.size(), budget, copy), Error);
}

TEST(JsonReader, KnowsNoNanUnlessPythonWroteIt) {
  EXPECT_EQ(Rewritten("[NaN]"), "invalid JSON at byte 1, near 'N'");
  EXPECT_EQ(Rewritten("[-Infinity]"), "invalid JSON at byte 2, near '-I'");
}

TEST(JsonReader, ReadsTheNumbersOfPython) {
  EXPECT_EQ(Rewritten("[NaN,Infinity,-Infinity,1e999,12345678901234567890123]", Dialect::kPython),
            "[NaN,Infinity,-Infinity,1e999,12345678901234567890123]");
}

TEST(JsonReader, RefusesWhatOnlyBeginsAsANumberOfPython) {
  EXPECT_EQ(Rewritten("[Infinite]", Dialect::kPython), "invalid JSON at byte 8, near 'Infinite'");
}

TEST(JsonReader, ReadsTheLoneSurrogatesOfPython) {
  EXPECT_EQ(Rewritten(R"(["\ud800","\udc00x","\ud800\ud83d\ude00","\ud800\n","\ud800\u0041"])",
                      Dialect::kPython),
            R"(["\ud800","\udc00x","\ud800\ud83d\ude00","\ud800\n","\ud800A"])");
}

TEST(JsonReader, TakesAKeyTwiceAsPythonDoes) {
  EXPECT_EQ(Rewritten(R"({"a":1,"a":2})", Dialect::kPython), R"({"a":1,"a":2})");
}

TEST(JsonReader, ReadsAThousandLevelsOfPython) {
  const std::string text = std::string(1000, '[') + std::string(1000, ']');
  EXPECT_EQ(Rewritten(text, Dialect::kPython), text);
  EXPECT_EQ(Rewritten('[' + text + ']', Dialect::kPython), "is nested more than 1000 deep");
}

TEST(JsonReader, ReadsLines) {
  const std::string text = "{\"a\": 1}\n[2]\n\n3\n\"x\"";
  Budget budget = Budget::ForFile(0);
  Copy copy;
  ReadLines(MemorySource(text), 0, text.size(), budget, copy);
  EXPECT_EQ(copy.json(), R"({"a":1},[2],3,"x")");
}

TEST(JsonReader, ReportsTheLineOfAnUnexpectedEnd) {
  Budget budget = Budget::ForFile(0);
  Copy copy;
  EXPECT_THAT([&] { ReadLines(MemorySource("1\n[2"), 0, 4, budget, copy); },
              testing::ThrowsMessage<Error>("invalid JSON at byte 4: unexpected end of text"));
}

Extent ExtentOf(const std::string& text) {
  return {std::make_shared<MemorySource>(text), 0, text.size()};
}

TEST(JsonDocument, KeepsNumbersOfAllSizes) {
  Budget budget = Budget::ForFile(0);
  const Document document = Document::Of(
      ExtentOf("[18446744073709551615,-9223372036854775808,-9223372036854775809,1.5,-0,1e999,"
               "-1e999,1e-999,NaN,-Infinity]"),
      budget);
  Items items(document.root());
  EXPECT_EQ(items.Next()->whole(), UINT64_MAX);
  EXPECT_EQ(items.Next()->negative(), INT64_MIN);
  EXPECT_EQ(items.Next()->text(), "-9223372036854775809");
  EXPECT_EQ(items.Next()->number(), 1.5);
  EXPECT_EQ(items.Next()->negative(), 0);
  EXPECT_EQ(items.Next()->number(), INFINITY);
  EXPECT_EQ(items.Next()->number(), -INFINITY);
  EXPECT_EQ(items.Next()->number(), 0.0);
  EXPECT_TRUE(std::isnan(items.Next()->number()));
  EXPECT_EQ(items.Next()->number(), -INFINITY);
  EXPECT_FALSE(items.Next());
}

TEST(JsonDocument, SkipsNestedValues) {
  Budget budget = Budget::ForFile(0);
  const Document document =
      Document::Of(ExtentOf(R"({"a":{"b":[1,[2,{"c":null}]]},"d":true,"e":"text"})"), budget);
  Members members(document.root());
  const auto a = members.Next();
  EXPECT_EQ(a->key, "a");
  EXPECT_EQ(a->value.Find("b")->count(), 2U);
  const auto d = members.Next();
  EXPECT_EQ(d->value.kind(), Kind::kTrue);
  EXPECT_EQ(a->value.end() + 8 + 1, d->value.begin());  // The length of the key, and it.
  EXPECT_EQ(members.Next()->value.text(), "text");
  EXPECT_FALSE(members.Next());
}

TEST(JsonDocument, FindsTheLastMemberOfAKey) {
  Budget budget = Budget::ForFile(0);
  const Document document = Document::Of(ExtentOf(R"({"a":1,"a":2})"), budget);
  EXPECT_EQ(document.root().Find("a")->whole(), 2U);
  EXPECT_FALSE(document.root().Find("b"));
}

TEST(JsonDocument, FindsNothingInOtherValues) {
  Budget budget = Budget::ForFile(0);
  EXPECT_FALSE(Document::Of(ExtentOf("7"), budget).root().Find("a"));
}

TEST(JsonDocument, IsAListOfLines) {
  Budget budget = Budget::ForFile(0);
  const Document document = Document::OfLines(ExtentOf("{}\n[1]\n2\n"), budget);
  EXPECT_EQ(document.root().count(), 3U);
}

TEST(JsonDocument, GivesItsMemoryBack) {
  Budget budget = Budget::ForFile(0);
  {
    const Document document = Document::Of(ExtentOf('"' + std::string(10'000, 'x') + '"'), budget);
    EXPECT_GT(budget.used(), 10'000U);
  }
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
}  // namespace ckptfs::json
