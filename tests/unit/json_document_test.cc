#include "parser/codec/json_document.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::json {
namespace {

using Kind = Node::Kind;

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

TEST(JsonDocument, StepsOverWhatIsInside) {
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

TEST(JsonDocument, FindsNothingInWhatIsNoObject) {
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
