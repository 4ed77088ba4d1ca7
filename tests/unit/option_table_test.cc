#include "fs/option_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckptfs {
namespace {

TEST(EditDistance, CountsInsertedRemovedReplacedAndExchangedLetters) {
  EXPECT_EQ(EditDistance("", ""), 0U);
  EXPECT_EQ(EditDistance("flat", "flat"), 0U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("abc", ""), 3U);
  EXPECT_EQ(EditDistance("xatr", "xattr"), 1U);
  EXPECT_EQ(EditDistance("xatttr", "xattr"), 1U);
  EXPECT_EQ(EditDistance("xetra", "xattr"), 3U);
  EXPECT_EQ(EditDistance("flta", "flat"), 1U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
}

TEST(EditDistance, OfLongWordsIsNotComputed) {
  const std::string longest(64, 'a');
  EXPECT_EQ(EditDistance(longest, longest), 0U);
  EXPECT_EQ(EditDistance(longest + "a", longest + "a"), 65U);
  EXPECT_EQ(EditDistance("a", longest + "a"), 65U);
}

TEST(NearestWord, IsTheOneWithTheLeastDistance) {
  const std::vector<std::string_view> known = {"memory", "cache_dir", "cache_size", "umask", "uid"};
  EXPECT_EQ(NearestWord("memroy", known), "memory");
  EXPECT_EQ(NearestWord("cache_sise", known), "cache_size");
  EXPECT_EQ(NearestWord("CACHE-DIR", known), "cache_dir");
  EXPECT_EQ(NearestWord("mask", known), "umask");
  EXPECT_EQ(NearestWord("cache", known), "cache_dir");
  EXPECT_EQ(NearestWord("ui", known), "");
  EXPECT_EQ(NearestWord("", known), "");
  EXPECT_EQ(NearestWord("endpoint", known), "");
}

}  // namespace
}  // namespace ckptfs
