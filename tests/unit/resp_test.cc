#include "parser/codec/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "parser/base/error.h"

namespace ckptfs::resp {
namespace {

using testing::ThrowsMessage;

using Kind = Head::Kind;

TEST(Resp, WritesACommandWithAnyBytesInIt) {
  std::string out;
  AppendCommand({"GET", std::string_view("a b\0\r\n", 6)}, out);
  EXPECT_EQ(out, std::string("*2\r\n$3\r\nGET\r\n$6\r\na b") + '\0' + "\r\n\r\n");
}

TEST(Resp, AppendsACommandToOthers) {
  std::string out = "*1\r\n$4\r\nPING\r\n";
  AppendCommand({"PING"}, out);
  EXPECT_EQ(out, "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n");
}

TEST(Resp, ReadsAWord) {
  const auto head = ReadHead("+OK\r\n:1\r\n");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->kind, Kind::kWord);
  EXPECT_EQ(head->text, "OK");
  EXPECT_EQ(head->size, 5U);
}

TEST(Resp, ReadsAnError) {
  const auto head = ReadHead("-NOAUTH Authentication required.\r\n");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->kind, Kind::kError);
  EXPECT_EQ(head->text, "NOAUTH Authentication required.");
}

TEST(Resp, ReadsANumber) {
  const auto head = ReadHead(":9223372036854775807\r\n");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->kind, Kind::kNumber);
  EXPECT_EQ(head->number, 9223372036854775807);
}

TEST(Resp, ReadsHowManyBytesFollow) {
  const auto head = ReadHead("$5\r\nhello\r\n");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->kind, Kind::kValue);
  EXPECT_EQ(head->number, 5);
  EXPECT_EQ(head->size, 4U);
}

TEST(Resp, ReadsANullReply) {
  const auto head = ReadHead("$-1\r\n");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->kind, Kind::kNothing);
}

TEST(Resp, WaitsForTheEndOfALine) { EXPECT_FALSE(ReadHead("+O")); }

TEST(Resp, WaitsForTheLastByteOfALine) { EXPECT_FALSE(ReadHead("+OK\r")); }

TEST(Resp, WaitsForTheFirstByte) { EXPECT_FALSE(ReadHead("")); }

TEST(Resp, RefusesAWebServer) {
  EXPECT_THAT([] { ReadHead("HTTP/1.1 400 Bad Request\r\n"); },
              ThrowsMessage<Error>("not a Redis reply: 'HTTP/1.1 400 Bad Request'"));
}

TEST(Resp, RefusesALineThatEndsWithALineFeedAlone) {
  EXPECT_THAT([] { ReadHead("+OK\n"); }, ThrowsMessage<Error>("not a Redis reply: '+OK'"));
}

TEST(Resp, RefusesAnEmptyLine) {
  EXPECT_THAT([] { ReadHead("\r\n"); }, ThrowsMessage<Error>("not a Redis reply: ''"));
}

TEST(Resp, RejectsAMalformedNumber) {
  EXPECT_THAT([] { ReadHead(":12x\r\n"); }, ThrowsMessage<Error>("no number in the reply ':12x'"));
}

TEST(Resp, RefusesANumberBeyond64Bits) {
  EXPECT_THAT([] { ReadHead("$9223372036854775808\r\n"); },
              ThrowsMessage<Error>("no number in the reply '$9223372036854775808'"));
}

TEST(Resp, RefusesANegativeLength) {
  EXPECT_THAT([] { ReadHead("$-2\r\n"); },
              ThrowsMessage<Error>("invalid length of a value in the reply: -2"));
}

TEST(Resp, RefusesALineWithoutEnd) {
  EXPECT_THAT([] { ReadHead(std::string(kLongestLine, '+')); },
              ThrowsMessage<Error>("line of a reply too long: more than 8192 bytes"));
}

TEST(Resp, ReadsAMovedRedirect) {
  const auto redirect = ReadRedirect("MOVED 3999 127.0.0.1:6381");
  ASSERT_TRUE(redirect);
  EXPECT_FALSE(redirect->is_once);
  EXPECT_EQ(redirect->slot, 3999);
  EXPECT_EQ(redirect->host, "127.0.0.1");
  EXPECT_EQ(redirect->port, 6381);
}

TEST(Resp, ReadsAnAskRedirect) {
  const auto redirect = ReadRedirect("ASK 0 ::1:6381");
  ASSERT_TRUE(redirect);
  EXPECT_TRUE(redirect->is_once);
  EXPECT_EQ(redirect->host, "::1");
  EXPECT_EQ(redirect->port, 6381);
}

TEST(Resp, ReadsARedirectToAnotherPortOfTheSameHost) {
  const auto redirect = ReadRedirect("MOVED 1 :6381");
  ASSERT_TRUE(redirect);
  EXPECT_EQ(redirect->host, "");
}

TEST(Resp, TakesOtherErrorsForNoRedirect) { EXPECT_FALSE(ReadRedirect("MOVEDX 1 h:1")); }

TEST(Resp, RejectsARedirectToAnInvalidSlot) {
  EXPECT_THAT([] { ReadRedirect("MOVED 16384 h:6379"); },
              ThrowsMessage<Error>("invalid redirect 'MOVED 16384 h:6379'"));
}

TEST(Resp, RefusesARedirectWithoutAPort) {
  EXPECT_THAT([] { ReadRedirect("MOVED 1 h"); },
              ThrowsMessage<Error>("invalid redirect 'MOVED 1 h'"));
}

// The slots are what redis-server 7.0.15 answers to CLUSTER KEYSLOT.
TEST(Resp, KnowsTheSlotOfAKey) { EXPECT_EQ(SlotOf("123456789"), 12739); }

TEST(Resp, KnowsTheSlotOfTheEmptyKey) { EXPECT_EQ(SlotOf(""), 0); }

TEST(Resp, HashesTheTagInBracesOnly) { EXPECT_EQ(SlotOf("a{123456789}b{c}"), 12739); }

TEST(Resp, HashesAllOfAKeyWithEmptyBraces) { EXPECT_EQ(SlotOf("foo{}{bar}"), 8363); }

TEST(Resp, HashesAllOfAKeyWithAnUnclosedBrace) { EXPECT_EQ(SlotOf("a{b"), 13340); }

}  // namespace
}  // namespace ckptfs::resp
