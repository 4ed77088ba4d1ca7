#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "tests/support/npy.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

std::string Letters(std::string_view data) {
  return Npy("'|u1'", "(" + std::to_string(data.size()) + ",)", data);
}

Checkpoint Read(const ZipWriter& archive) { return ReadCheckpoint(archive.Source()); }

std::string ErrorOf(const ZipWriter& archive) {
  return ErrorOf(Source{.file = archive.Source(), .folder = nullptr, .file_name = ""});
}

std::vector<std::string> KeysOf(const Checkpoint& checkpoint) {
  std::vector<std::string> keys;
  for (const Member& member : checkpoint.root.members) keys.push_back(member.key.text);
  return keys;
}

TEST(Npz, HasAnArrayInEachMember) {
  const Checkpoint checkpoint =
      Read(ZipWriter().Add("w.npy", Letters("abc")).AddDeflated("b.npy", Letters("de")));
  EXPECT_EQ(checkpoint.format, "npz");
  EXPECT_THAT(KeysOf(checkpoint), ElementsAre("w", "b"));
  const Tensor& w = TensorAt(checkpoint, "w");
  EXPECT_EQ(ReadString(w.data), "abc");
  EXPECT_EQ(w.member, "w.npy");
  EXPECT_TRUE(w.is_in_file);
  const Tensor& b = TensorAt(checkpoint, "b");
  EXPECT_EQ(ReadString(b.data), "de");
  EXPECT_FALSE(b.is_in_file);
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Npz, HasKeysOfAnyText) {
  EXPECT_THAT(KeysOf(Read(ZipWriter()
                              .Add("a/b.npy", Letters("a"))
                              .Add("../up.npy", Letters("a"))
                              .Add("/abs.npy", Letters("a"))
                              .Add("back\\slash.npy", Letters("a"))
                              .Add(".npy", Letters("a"))
                              .Add("d/.npy", Letters("a")))),
              ElementsAre("a/b", "../up", "/abs", "back\\slash", "", "d/"));
}

TEST(Npz, TakesOneSuffixFromAName) {
  EXPECT_THAT(KeysOf(Read(ZipWriter()
                              .Add("a.npy", Letters("a"))
                              .Add("a.npy.npy", Letters("a"))
                              .Add("U.NPY", Letters("a"))
                              .Add("none", Letters("a")))),
              ElementsAre("a", "a.npy", "U.NPY", "none"));
}

TEST(Npz, ReportsMembersThatAreNoArrays) {
  const Checkpoint checkpoint =
      Read(ZipWriter().Add("readme.txt", "hi").Add("w.npy", Letters("abc")).Add("empty.npy", ""));
  EXPECT_THAT(KeysOf(checkpoint), ElementsAre("w"));
  EXPECT_EQ(checkpoint.annotations,
            (std::vector<Annotation>{{"not_arrays", R"(["readme.txt","empty.npy"])"}}));
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Npz, MayHaveNoMembers) {
  const Checkpoint checkpoint = Read(ZipWriter());
  EXPECT_EQ(checkpoint.format, "npz");
  EXPECT_THAT(KeysOf(checkpoint), IsEmpty());
  EXPECT_THAT(checkpoint.warnings, ElementsAre("zip: the archive is empty"));
}

TEST(Npz, MayBeLargerThan4Gib) {
  const ByteSourcePtr archive =
      ZipWriter().AddZeros("zeros", uint64_t{5} << 30U).Add("w.npy", Letters("abc")).Source();
  const Checkpoint checkpoint = ReadCheckpoint(archive);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "w").data), "abc");
  EXPECT_GT(TensorAt(checkpoint, "w").file_offset, uint64_t{5} << 30U);
}

TEST(Npz, MustNotHaveTwoMembersOfOneKey) {
  EXPECT_EQ(ErrorOf(ZipWriter().Add("a", Letters("a")).Add("a.npy", Letters("b"))),
            "memory: zip: the members 'a' and 'a.npy' are the same array");
}

TEST(Npz, MustBeginWhereTheFileDoes) {
  EXPECT_EQ(ErrorOf(ZipWriter({.prefix = "junk"}).Add("a.npy", Letters("a"))),
            "memory: zip: the file does not begin with the archive");
}

TEST(Npz, ShowsAnArrayOfObjects) {
  const Checkpoint checkpoint = Read(ZipWriter()
                                         .Add("w.npy", Letters("abc"))
                                         .Add("o.npy", Npy("'|O'", "()",
                                                           "\x80\x02]K\x07"
                                                           "a.")));
  EXPECT_EQ(std::get<Value>(checkpoint.root.members.at(1).content).json, "[7]");
}

TEST(Npz, ShowsTheOthersIfThePickleOfOneArrayIsCorrupt) {
  const Checkpoint checkpoint =
      Read(ZipWriter().Add("w.npy", Letters("abc")).Add("o.npy", Npy("'|O'", "(1,)", "pickle")));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "w").data), "abc");
  const auto& value = std::get<Value>(checkpoint.root.members.at(1).content);
  EXPECT_EQ(MessageOf(value.error), "PUT at byte 0: unterminated line");
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("tensor 'o': PUT at byte 0: unterminated line: reading it will fail"));
}

TEST(Npz, ShowsTheOthersWhereOneArrayIsShort) {
  const Checkpoint checkpoint =
      Read(ZipWriter().Add("short.npy", Npy("'|u1'", "(3,)", "ab")).Add("w.npy", Letters("abc")));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "short").error),
            "has 2 bytes, but its 3 elements need 3");
  EXPECT_EQ(TensorAt(checkpoint, "short").data.length, 3U);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "w").data), "abc");
}

TEST(Npz, ShowsTheOthersIfOneHeaderIsCorrupt) {
  const Checkpoint checkpoint =
      Read(ZipWriter().Add("bad.npy", NpyOf("{'descr'")).Add("w.npy", Letters("abc")));
  EXPECT_THAT(
      checkpoint.warnings,
      ElementsAre("tensor 'bad': header: unexpected end at byte 18 (expected a :): reading it "
                  "will fail"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "w").data), "abc");
}

TEST(Npz, ShowsTheOthersWhereOneMemberIsEncrypted) {
  ZipEntry encrypted;
  encrypted.flags |= 1U;
  const Checkpoint checkpoint = Read(ZipWriter()
                                         .Add("secret.npy", Letters("abc"), encrypted)
                                         .Add("note", "text", encrypted)
                                         .Add("w.npy", Letters("abc")));
  EXPECT_THAT(
      checkpoint.warnings,
      ElementsAre("tensor 'secret': secret.npy: unsupported zip encryption: reading it will fail"));
  EXPECT_EQ(checkpoint.annotations, (std::vector<Annotation>{{"not_arrays", R"(["note"])"}}));
  EXPECT_THAT(KeysOf(checkpoint), ElementsAre("secret", "w"));
}

TEST(Npz, OfWhichNothingCanBeReadIsRefused) {
  EXPECT_EQ(ErrorOf(ZipWriter().Add("o.npy", Npy("'|O'", "(1,)", "pickle"))),
            "memory: tensor 'o': PUT at byte 0: unterminated line");
}

TEST(Npz, IsNoArchiveOfPytorch) {
  EXPECT_EQ(ErrorOf(ZipWriter().Add("archive/data.pkl", "no pickle").Add("w.npy", Letters("a"))),
            "memory: data.pkl: unknown opcode 0x6e at byte 0");
}

}  // namespace
}  // namespace ckptfs
