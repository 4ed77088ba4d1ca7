#include "parser/format/common/diagnose.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

namespace ckptfs {
namespace {

using std::string_literals::operator""s;

std::string_view RecognizeText(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return DiagnoseUnknownFile({.size = bytes.size(), .head = bytes, .tail = bytes}).text;
}

TEST(DiagnoseUnknownFile, AnEmptyFile) { EXPECT_EQ(RecognizeText(""), "it is empty"); }

TEST(DiagnoseUnknownFile, AnImage) {
  EXPECT_EQ(RecognizeText("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s), "it is a PNG image");
}

TEST(DiagnoseUnknownFile, ACompressedFile) {
  EXPECT_EQ(RecognizeText("\x1f\x8b\x08\0rest"s),
            "it is compressed by gzip in a way that is not supported");
}

TEST(DiagnoseUnknownFile, AWebPage) {
  EXPECT_EQ(RecognizeText("<!DOCTYPE html>\n<title>Sign in</title>"),
            "it is an HTML page, perhaps an error message that was downloaded in place of the "
            "file");
}

TEST(DiagnoseUnknownFile, APointerIntoGitLfs) {
  EXPECT_EQ(RecognizeText("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
            "it is a Git LFS pointer file: fetch the real file with git lfs pull");
}

TEST(DiagnoseUnknownFile, AFileOfAPreviewOfTorch) {
  EXPECT_EQ(RecognizeText("PYTORCH1\0\0\0\0"s),
            "it was written by a preview of torch 1.0, whose format no release of torch reads");
}

TEST(DiagnoseUnknownFile, ATarArchive) {
  std::string tar(512, '\0');
  tar.replace(0, 5, "m.pth");
  tar.replace(257, 5, "ustar");
  EXPECT_EQ(RecognizeText(tar), "it is a tar archive whose first header is corrupt");
}

TEST(DiagnoseUnknownFile, AFileThatWasNeverWritten) {
  EXPECT_EQ(RecognizeText(std::string(4096, '\0')),
            "it begins with zeros only: perhaps it was not copied to the end");
}

TEST(DiagnoseUnknownFile, NothingInOtherBytes) { EXPECT_EQ(RecognizeText("hello, world"), ""); }

TEST(DiagnoseUnknownFile, NothingInTheFirstByteOfAMark) { EXPECT_EQ(RecognizeText("\x80"), ""); }

}  // namespace
}  // namespace ckptfs
