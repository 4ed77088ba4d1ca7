#include "parser/format/common/recognize.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

namespace ckptfs {
namespace {

using std::string_literals::operator""s;

std::string_view RecognizeText(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Recognize({.size = bytes.size(), .head = bytes, .tail = bytes});
}

TEST(Recognize, AnEmptyFile) { EXPECT_EQ(RecognizeText(""), "it is empty"); }

TEST(Recognize, AnImage) {
  EXPECT_EQ(RecognizeText("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s), "it is a PNG image");
}

TEST(Recognize, ACompressedFile) {
  EXPECT_EQ(RecognizeText("\x1f\x8b\x08\0rest"s),
            "it is compressed by gzip in a way that is not supported");
}

TEST(Recognize, AWebPage) {
  EXPECT_EQ(RecognizeText("<!DOCTYPE html>\n<title>Sign in</title>"),
            "it is an HTML page, perhaps an error message that was downloaded in place of the "
            "file");
}

TEST(Recognize, APointerIntoGitLfs) {
  EXPECT_EQ(RecognizeText("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
            "it is a Git LFS pointer file: fetch the real file with git lfs pull");
}

TEST(Recognize, AFileOfAPreviewOfTorch) {
  EXPECT_EQ(RecognizeText("PYTORCH1\0\0\0\0"s),
            "it was written by a preview of torch 1.0, whose format no release of torch reads");
}

TEST(Recognize, ATarArchive) {
  std::string tar(512, '\0');
  tar.replace(0, 5, "m.pth");
  tar.replace(257, 5, "ustar");
  EXPECT_EQ(RecognizeText(tar), "it is a tar archive whose first header is corrupt");
}

TEST(Recognize, AFileThatWasNeverWritten) {
  EXPECT_EQ(RecognizeText(std::string(4096, '\0')),
            "it begins with zeros only: perhaps it was not copied to the end");
}

TEST(Recognize, NothingInOtherBytes) { EXPECT_EQ(RecognizeText("hello, world"), ""); }

TEST(Recognize, NothingInTheFirstByteOfAMark) { EXPECT_EQ(RecognizeText("\x80"), ""); }

}  // namespace
}  // namespace ckptfs
