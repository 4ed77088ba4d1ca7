// ASCII text: case, blanks and numbers.

#include "parser/base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace ckptfs {
namespace {

TEST(Text, ChangesTheCaseOfAsciiLettersOnly) {
  EXPECT_EQ(ToLower("Content-TYPE Ä1"), "content-type Ä1");
  EXPECT_EQ(ToUpper("aws_s3 ä1"), "AWS_S3 ä1");
}

TEST(Text, IsTrimmedOfBlanksAtItsEnds) {
  EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(Trim(" \r\n"), "");
  EXPECT_EQ(Trim("--a-b-", "-"), "a-b");
}

TEST(ParseNumber, ParsesAllDigitsOfAText) {
  EXPECT_EQ(ParseNumber<uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ParseNumber<int64_t>("-7"), -7);
  EXPECT_EQ(ParseNumber<int>("007"), 7);
  EXPECT_EQ(ParseNumber<uint32_t>("fF", 16), 255U);
  EXPECT_EQ(ParseNumber<double>("-2.5e3"), -2500.0);
}

TEST(ParseNumber, RejectsAnythingElse) {
  for (const char* text : {"", "1 ", " 1", "+1", "-1", "1x", "0x1", "18446744073709551616"}) {
    EXPECT_EQ(ParseNumber<uint64_t>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseNumber<uint8_t>("256"), std::nullopt);
  EXPECT_EQ(ParseNumber<double>("1.5x"), std::nullopt);
}

}  // namespace
}  // namespace ckptfs
