#include "parser/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "parser/base/error.h"
#include "parser/io/location.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::Property;
using testing::StartsWith;
using testing::Throws;
using testing::ThrowsMessage;

// A directory of our own with a file "m.pth" of five bytes in it; both go away at the end.
class OpenTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "ckptfs-open-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    WriteFile("m.pth", "hello");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ / name; }

  void WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }

  std::filesystem::path directory_;
};

TEST_F(OpenTest, OpensAPath) { EXPECT_EQ(OpenSource(Path("m.pth")).file->size(), 5U); }

TEST_F(OpenTest, OpensAFileUri) {
  EXPECT_EQ(OpenSource("file://" + Path("m.pth")).file->size(), 5U);
}

TEST_F(OpenTest, OpensAUriWhoseSchemeIsInCapitals) {
  EXPECT_EQ(OpenSource("FILE://" + Path("m.pth")).file->size(), 5U);
}

TEST_F(OpenTest, OpensAFileWhoseNameHasAColon) {
  WriteFile("odd:name", "abc");
  EXPECT_EQ(OpenSource(Path("odd:name")).file->size(), 3U);
}

TEST_F(OpenTest, NamesAFileThatIsMissing) {
  EXPECT_THAT(
      [&] { OpenSource(Path("missing")); },
      Throws<Error>(AllOf(
          Property(&Error::what, Path("missing") + ": cannot open: No such file or directory"),
          Property(&Error::code, ENOENT))));
}

TEST_F(OpenTest, OpensADirectory) {
  EXPECT_EQ(OpenSource(directory_).folder->Open("m.pth")->size(), 5U);
}

TEST_F(OpenTest, ShowsNoControlCharactersOfAName) {
  EXPECT_THAT([] { OpenSource("/nowhere/a\nb\x1b[31m"); },
              ThrowsMessage<Error>("/nowhere/a?b?[31m: cannot open: No such file or directory"));
}

TEST_F(OpenTest, ListsTheSchemesIfItDoesNotKnowOne) {
  EXPECT_THAT(
      [] { OpenSource("gopher://host/m"); },
      ThrowsMessage<Error>(AllOf(
          StartsWith("gopher://host/m: unsupported URI scheme 'gopher' (supported: file, "),
          HasSubstr(" http, https"), EndsWith("; a file of that name is ./gopher://host/m)"))));
}

TEST_F(OpenTest, ShowsNoPasswordInAMessage) {
  EXPECT_THAT([] { OpenSource("gopher://joe:secret@host/m?token=secret"); },
              ThrowsMessage<Error>(AllOf(StartsWith("gopher://host/m: "),
                                         EndsWith("; a file of that name is ./gopher://host/m)"),
                                         Not(HasSubstr("secret")))));
}

TEST(SchemeName, EndsBeforeTheSlashes) { EXPECT_EQ(SchemeNameOf("s3://bucket/key"), "s3"); }

TEST(SchemeName, HasNoCase) {
  EXPECT_EQ(SchemeNameOf("S3://Bucket/Key"), "s3");
  const Location location = ParseLocation("HTTPS://Host/M");
  EXPECT_EQ(location.text, "https://Host/M");
  EXPECT_EQ(location.scheme, "https");
  EXPECT_EQ(location.authority, "Host");
  EXPECT_EQ(location.path, "/M");
}

TEST(SchemeName, DoesNotEndAtAColonAlone) { EXPECT_EQ(SchemeNameOf("odd:name"), ""); }

TEST(SchemeName, IsNotAPathWithSlashesInTheMiddle) { EXPECT_EQ(SchemeNameOf("./a://b"), ""); }

TEST(SchemeName, DoesNotBeginWithADigit) { EXPECT_EQ(SchemeNameOf("3s://b"), ""); }

TEST(SchemeName, IsNotEmpty) { EXPECT_EQ(SchemeNameOf("://b"), ""); }

TEST(Redacted, LeavesAPathAlone) { EXPECT_EQ(Redacted("/a/b@c?d#e"), "/a/b@c?d#e"); }

TEST(Redacted, LeavesAFileUriAlone) { EXPECT_EQ(Redacted("file:///a@b?c"), "file:///a@b?c"); }

TEST(Redacted, TakesAwayAUserThatAFileUriShouldNotHave) {
  EXPECT_EQ(Redacted("file://joe:secret@host/m.pth"), "file://host/m.pth");
}

TEST(Redacted, TakesAwayUserPasswordQueryAndFragment) {
  EXPECT_EQ(Redacted("https://joe:secret@host:80/m.pth?X-Signature=secret#x"),
            "https://host:80/m.pth");
}

TEST(Redacted, KeepsAnAtSignInThePathAfterASchemeInCapitals) {
  EXPECT_EQ(Redacted("HTTP://host:80/m@1?t"), "http://host:80/m@1");
}

TEST(Redacted, KeepsAnAtSignInThePath) {
  EXPECT_EQ(Redacted("https://host:80/m@v2/m.pth"), "https://host:80/m@v2/m.pth");
}

TEST(Redacted, TakesAwayAPasswordWithASlashInIt) {
  EXPECT_EQ(Redacted("redis://:sec/ret@host/model"), "redis://host/model");
}

TEST(Redacted, TakesAwayAPasswordThatBeginsLikeAPort) {
  EXPECT_EQ(Redacted("redis://joe:1234/5@host"), "redis://host");
  EXPECT_EQ(Redacted("redis://:1234/5@host/model"), "redis://host/model");
  EXPECT_EQ(Redacted("s3://joe:1234/5@bucket/m.pth"), "s3://bucket/m.pth");
  EXPECT_EQ(Redacted("http://:1234/5@host/m.pth"), "http://host/m.pth");
  EXPECT_EQ(Redacted("http://joe:123456/7@host/m.pth"), "http://host/m.pth");
  EXPECT_EQ(Redacted("http://joe:/5@host/m.pth"), "http://host/m.pth");
}

TEST(Redacted, TakesAwayAPasswordWithAQuestionMarkInIt) {
  EXPECT_EQ(Redacted("redis://joe:sec?ret@host/model"), "redis://host/model");
}

TEST(Redacted, TakesAwayAPasswordBehindASlashTooMany) {
  EXPECT_EQ(Redacted("http:///joe:secret@host/m.pth"), "http://host/m.pth");
}

TEST(Redacted, TakesAwayAPasswordBeforeAnEncodedAtSign) {
  EXPECT_EQ(Redacted("s3://joe%3Asecret%40bucket/m.pth"), "s3://bucket/m.pth");
  EXPECT_EQ(Redacted("s3://joe:secret%40bucket/m%40v2"), "s3://bucket/m%40v2");
}

TEST(Redacted, KeepsAnAddressInBrackets) {
  EXPECT_EQ(Redacted("http://[::1]:8000/a@b"), "http://[::1]:8000/a@b");
}

}  // namespace
}  // namespace ckptfs
