// Settings of the AWS tools: sections, and command lines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parser/base/error.h"
#include "parser/codec/ini.h"

namespace ckptfs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

TEST(Ini, HasSectionsOfSettings) {
  const ini::Sections sections = ini::Read("[a]\nx = 1\ny:2\n\n[ profile b ]\nx=3 # kept\n");
  EXPECT_THAT(sections,
              UnorderedElementsAre(Pair("a", UnorderedElementsAre(Pair("x", "1"), Pair("y", "2"))),
                                   Pair("profile b", UnorderedElementsAre(Pair("x", "3 # kept")))));
}

TEST(Ini, IgnoresTheCaseOfNames) {
  EXPECT_THAT(ini::Read("[a]\nAWS_Key=V\n"), Contains(Pair("a", Contains(Pair("aws_key", "V")))));
}

TEST(Ini, KeepsFurtherDelimitersInValues) {
  EXPECT_THAT(ini::Read("[a]\nx = b=c:d\n"), Contains(Pair("a", Contains(Pair("x", "b=c:d")))));
}

TEST(Ini, ContinuesValuesInIndentedLines) {
  const ini::Sections sections = ini::Read("[a]\ns3 =\n  x = 1\n\n  # no value\n  y = 2\nz = 3\n");
  EXPECT_THAT(
      sections,
      Contains(Pair("a", UnorderedElementsAre(Pair("s3", "\nx = 1\ny = 2"), Pair("z", "3")))));
}

TEST(Ini, HasNestedSettings) {
  EXPECT_THAT(ini::ReadValue("\nx = 1\nnonsense\nY = 2"),
              UnorderedElementsAre(Pair("x", "1"), Pair("y", "2")));
}

TEST(Ini, UsesTheLastOfDuplicateSettings) {
  EXPECT_THAT(ini::Read("[a]\nx=1\n[b]\n[a]\nx=2\ny=3\n"),
              Contains(Pair("a", UnorderedElementsAre(Pair("x", "2"), Pair("y", "3")))));
}

TEST(Ini, AcceptsAByteOrderMarkAndCrLf) {
  EXPECT_THAT(ini::Read("\xEF\xBB\xBF[a]\r\nx = 1\r\n"),
              UnorderedElementsAre(Pair("a", UnorderedElementsAre(Pair("x", "1")))));
}

TEST(Ini, DoesNotShowMalformedLines) {
  EXPECT_THAT([] { ini::Read("[a]\n\nsecret\n"); },
              ThrowsMessage<Error>("line 3 is neither a section nor a setting"));
}

TEST(Ini, RejectsASettingBeforeTheFirstSection) {
  EXPECT_THAT([] { ini::Read("# all\nx = 1\n"); },
              ThrowsMessage<Error>("line 2 is a setting before the first section"));
}

TEST(SplitWords, SeparatesThemByBlanks) {
  EXPECT_THAT(ini::SplitWords(" a  b\tc\n"), ElementsAre("a", "b", "c"));
}

TEST(SplitWords, ReadsQuotes) {
  EXPECT_THAT(ini::SplitWords(R"("/my tools/x" --a='b  c'd "" '')"),
              ElementsAre("/my tools/x", "--a=b  cd", "", ""));
}

TEST(SplitWords, ReadsBackslashesAsPythonsShlex) {
  EXPECT_THAT(ini::SplitWords(R"(a\ b "c\"d\e\\" 'f\g')"),
              ElementsAre("a b", R"(c"d\e\)", R"(f\g)"));
}

TEST(SplitWords, ExpandsNothing) {
  EXPECT_THAT(ini::SplitWords("$HOME `x` *;|"), ElementsAre("$HOME", "`x`", "*;|"));
}

TEST(SplitWords, ReturnsNothingForABlankLine) { EXPECT_THAT(ini::SplitWords(" \t"), IsEmpty()); }

TEST(SplitWords, RejectsUnclosedQuotes) {
  EXPECT_THAT([] { ini::SplitWords("a 'b"); }, ThrowsMessage<Error>("unclosed quotation mark"));
  EXPECT_THAT([] { ini::SplitWords("a \\"); }, ThrowsMessage<Error>("trailing backslash"));
}

}  // namespace
}  // namespace ckptfs
