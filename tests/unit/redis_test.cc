#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/location.h"
#include "parser/source/redis/connection.h"
#include "parser/source/redis/key_table.h"
#include "tests/support/errors.h"
#include "tests/support/tensorizer_writer.h"

namespace ckptfs::redis {
namespace {

using testing::ElementsAre;

Target ParseUri(const std::string& uri) { return redis::ParseUri(ParseLocation(uri)); }

TEST(RedisUri, NamesAServerAndAKey) {
  const Target target = ParseUri("redis://cache.example:7000/models/m");
  EXPECT_EQ(target.server.host, "cache.example");
  EXPECT_EQ(target.server.port, 7000);
  EXPECT_EQ(target.key, "models/m");
  EXPECT_EQ(target.database, 0U);
  EXPECT_FALSE(target.is_tls);
}

TEST(RedisUri, HasADefaultPort) { EXPECT_EQ(ParseUri("redis://h/m").server.port, 6379); }

TEST(RedisUri, RequestsTls) { EXPECT_TRUE(ParseUri("rediss://h/m").is_tls); }

TEST(RedisUri, AcceptsAnIpv6Address) {
  const Target target = ParseUri("redis://[::1]:7000/m");
  EXPECT_EQ(target.server.host, "::1");
  EXPECT_EQ(target.server.port, 7000);
  EXPECT_EQ(target.name(), "redis://[::1]:7000/m");
}

TEST(RedisUri, IgnoresSlashesBeforeTheKey) { EXPECT_EQ(ParseUri("redis://h///m").key, "m"); }

TEST(RedisUri, DoesNotDecodeTheKey) {
  EXPECT_EQ(ParseUri("redis://h/a b%20c?d#e@f:g").key, "a b%20c?d#e@f:g");
}

TEST(RedisUri, HasADatabase) {
  const Target target = ParseUri("redis://h/m?db=3");
  EXPECT_EQ(target.key, "m");
  EXPECT_EQ(target.database, 3U);
}

TEST(RedisUri, HasOneDatabaseOnly) { EXPECT_EQ(ParseUri("redis://h/m?db=1?db=0").key, "m?db=1"); }

TEST(RedisUri, DecodesUserAndPassword) {
  const Target target = ParseUri("redis://jo%65:p%40%2Fw:%@h/m");
  EXPECT_EQ(target.user, "joe");
  EXPECT_EQ(target.password, "p@/w:%");
  EXPECT_EQ(target.key, "m");
}

TEST(RedisUri, HasNoCredentialsInMessages) {
  EXPECT_EQ(ParseUri("rediss://joe:secret@h:1/m").name(), "rediss://h:1/m");
}

TEST(RedisUri, RequiresAKey) {
  EXPECT_THAT([] { ParseUri("redis://h/"); },
              Fails(EINVAL,
                    "missing key (expected the key of a value after the host, or the prefix of a "
                    "model of tensorizer)"));
}

TEST(RedisUri, RequiresAHost) {
  EXPECT_THAT([] { ParseUri("redis:///m"); }, Fails(EINVAL, "missing host"));
}

TEST(RedisUri, RejectsAHostThatWouldChangeTheUrl) {
  EXPECT_THAT([] { ParseUri("redis://h?x/m"); }, Fails(EINVAL, "missing host"));
}

TEST(RedisUri, RejectsAnUnclosedBracket) {
  EXPECT_THAT([] { ParseUri("redis://[/m"); }, Fails(EINVAL, "missing host"));
}

TEST(RedisUri, ShowsNoPasswordWithASlash) {
  EXPECT_THAT([] { ParseUri("redis://joe:sec/ret@h/m"); }, Fails(EINVAL, "invalid port"));
}

TEST(RedisUri, ShowsNoPasswordThatLooksLikeAPort) {
  const auto message =
      "ambiguous '@': write a slash of a password as %2F, and put another '@' before a host with a "
      "port if the key has one, as in redis://@host:6379/key@2";
  EXPECT_THAT([] { ParseUri("redis://joe:1234/5@h"); }, Fails(EINVAL, message));
  EXPECT_THAT([] { ParseUri("redis://joe:1234/5@h:6379/m"); }, Fails(EINVAL, message));
  EXPECT_THAT([] { ParseUri("redis://:1234/5@h/m"); }, Fails(EINVAL, "missing host"));
}

TEST(RedisUri, AcceptsAnAtSignInTheKey) {
  EXPECT_EQ(ParseUri("redis://h/m@2").key, "m@2");
  EXPECT_EQ(ParseUri("redis://[::1]:1/m@2").key, "m@2");
  EXPECT_EQ(ParseUri("redis://@h:1/m@2").key, "m@2");
  EXPECT_EQ(ParseUri("redis://joe:secret@h:1/m@2").key, "m@2");
}

TEST(RedisUri, RejectsAPortOutOfRange) {
  EXPECT_THAT([] { ParseUri("redis://h:65536/m"); }, Fails(EINVAL, "invalid port"));
}

TEST(RedisUri, RejectsAMalformedDatabase) {
  EXPECT_THAT([] { ParseUri("redis://h/m?db=x"); },
              Fails(EINVAL, "invalid number of a database after ?db="));
}

TEST(RedisUri, ShowsNoPasswordOfAQuery) {
  EXPECT_THAT(
      [] { ParseUri("redis://h/0?password=secret"); },
      Fails(EINVAL, "unsupported place of the password (expected redis://:PASSWORD@host/key)"));
}

// Sets an environment variable while it exists.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(RedisLogin, IsReadFromTheEnvironment) {
  const Variable user("CKPTFS_REDIS_USER", "joe");
  const Variable password("CKPTFS_REDIS_PASSWORD", "ours");
  const Variable other("REDISCLI_AUTH", "theirs");
  Target target = ParseUri("redis://h/m");
  FillFromEnvironment(target);
  EXPECT_EQ(target.user, "joe");
  EXPECT_EQ(target.password, "ours");
}

TEST(RedisLogin, AcceptsThePasswordOfRedisCli) {
  const Variable other("REDISCLI_AUTH", "theirs");
  Target target = ParseUri("redis://h/m");
  FillFromEnvironment(target);
  EXPECT_EQ(target.password, "theirs");
}

TEST(RedisLogin, PrefersTheUri) {
  const Variable password("CKPTFS_REDIS_PASSWORD", "ours");
  Target target = ParseUri("redis://:mine@h/m");
  FillFromEnvironment(target);
  EXPECT_EQ(target.password, "mine");
}

TEST(RedisLogin, RequiresAPasswordForAUser) {
  Target target = ParseUri("redis://joe@h/m");
  EXPECT_THAT([&] { FillFromEnvironment(target); },
              Fails(EACCES, "missing password of the user: set CKPTFS_REDIS_PASSWORD"));
}

// The value that to_redis stores as the header of a model.
std::vector<std::byte> HeaderOf(const TensorizerWriter& file) {
  const std::string bytes = file.Finish();
  const auto header = std::as_bytes(std::span(bytes)).first(file.header_offset(0));
  return {header.begin(), header.end()};
}

std::vector<std::string> KeysOf(const KeyTable& table) {
  std::vector<std::string> keys;
  for (const KeyTable::Part& part : table.parts()) keys.push_back(table.KeyOf(part));
  return keys;
}

TEST(KeyTable, HasOnePartOfAValue) {
  const KeyTable table("m", 5);
  EXPECT_THAT(KeysOf(table), ElementsAre("m"));
  EXPECT_EQ(table.parts()[0].length, 5U);
}

TEST(KeyTable, HasTheKeysOfAModel) {
  TensorizerWriter file;
  file.Add({.name = "a b"});
  const uint64_t header = file.header_offset(0);
  const KeyTable table("p", HeaderOf(file));
  const uint64_t data = file.Finish().size() - 8 - 16;
  EXPECT_THAT(KeysOf(table), ElementsAre("p:header:0", fmt::format("p:a b:{}", header),
                                         fmt::format("p:a b:{}", data)));
  EXPECT_EQ(table.parts()[2].end(), file.Finish().size() - 8);
}

TEST(KeyTable, HasTheKeysOfAModelWithLongSizes) {
  TensorizerWriter file(5, 2);
  file.Add({.name = "a"});
  EXPECT_EQ(KeyTable("p", HeaderOf(file)).parts().size(), 3U);
}

TEST(KeyTable, IgnoresEmptyValues) {
  TensorizerWriter file;
  file.Add({.name = "a", .shape = {0}, .data = ""}).Add({.name = "b"});
  EXPECT_EQ(KeyTable("p", HeaderOf(file)).parts().size(), 4U);
}

TEST(KeyTable, FindsThePartOfAByte) {
  TensorizerWriter file;
  file.Add({.name = "a"});
  const KeyTable table("p", HeaderOf(file));
  EXPECT_EQ(table.Find(table.parts()[1].offset), 1U);
}

TEST(KeyTable, FindsThePartOfTheLastByteOfIt) {
  TensorizerWriter file;
  file.Add({.name = "a"});
  const KeyTable table("p", HeaderOf(file));
  EXPECT_EQ(table.Find(table.parts()[1].end() - 1), 1U);
}

TEST(KeyTable, FindsNothingAfterTheEnd) {
  const KeyTable table("m", 5);
  EXPECT_EQ(table.Find(5), 1U);
}

// Tensors whose data would begin where the first one's does.
TEST(KeyTable, IgnoresOverlappingParts) {
  TensorizerWriter file;
  file.Add({.name = "a"});
  std::vector<std::byte> header = HeaderOf(file);
  header[file.offsets_in_entry(0)] = std::byte{1};  // Now it begins in the header of the model.
  header[file.offsets_in_entry(0) + 1] = std::byte{0};
  EXPECT_THAT(KeysOf(KeyTable("p", header)).size(), 2U);
}

// Sizes of files have 63 bits.
TEST(KeyTable, IgnoresPartsBeyondTheLargestFile) {
  TensorizerWriter file;
  file.Add({.name = "a"});
  std::vector<std::byte> header = HeaderOf(file);
  for (size_t i = 0; i < 2 * sizeof(uint64_t); ++i) {
    header[file.offsets_in_entry(0) + i] = i < sizeof(uint64_t) ? std::byte{0xf0} : std::byte{0xf1};
  }
  EXPECT_EQ(KeyTable("p", header).parts().size(), 1U);
}

TEST(KeyTable, RejectsOtherFiles) {
  EXPECT_THAT([] { KeyTable("p", std::vector<std::byte>(100)); },
              Fails(EBADMSG, "not a tensorizer file: magic not found"));
}

TEST(KeyTable, RejectsATruncatedHeader) {
  EXPECT_THAT([] { KeyTable("p", std::vector<std::byte>(4)); },
              Fails(EBADMSG, "header at byte 0: magic needs 5 bytes, but only 4 are left"));
}

TEST(KeyTable, RejectsATruncatedIndex) {
  TensorizerWriter file;
  file.Add({.name = "a"});
  std::vector<std::byte> header = HeaderOf(file);
  const size_t index_size = header.size() - 73;
  header.pop_back();
  const std::string message =
      fmt::format("has {} bytes behind byte 73, but its index has {}", index_size - 1, index_size);
  EXPECT_THAT([&] { KeyTable("p", header); }, Fails(EBADMSG, message));
}

}  // namespace
}  // namespace ckptfs::redis
