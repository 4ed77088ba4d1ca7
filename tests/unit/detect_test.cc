#include "parser/detect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/folder_checkpoint.h"
#include "parser/format/common/diagnose.h"
#include "parser/io/simple_sources.h"
#include "tests/support/memory_folder.h"
#include "tests/support/safetensors.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Property;
using testing::StrEq;
using testing::Throws;
using testing::ThrowsMessage;
using std::string_literals::operator""s;
using Files = std::map<std::string, std::string>;

// A checkpoint with one tensor.
std::string Model() {
  return SafetensorsFile(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "abcd");
}

// A pickle of None.
std::string Pickle() { return "\x80\x04N."; }

TEST(Detect, RejectsAFileThatIsNotACheckpoint) {
  EXPECT_THAT([] { ReadCheckpoint(std::make_shared<MemorySource>("hello")); },
              Throws<Error>(AllOf(
                  Property(&Error::what, StrEq("memory: not a checkpoint in a supported format")),
                  Property(&Error::code, ENOTSUP))));
}

TEST(Detect, DiagnosesAnUnknownFile) {
  EXPECT_THAT([] { ReadCheckpoint(std::make_shared<MemorySource>("")); },
              ThrowsMessage<Error>("memory: not a checkpoint in a supported format: it is empty"));
}

TEST(Detect, NamesAFileInMessages) {
  EXPECT_THAT([] { ReadCheckpoint(std::make_shared<MemorySource>("hello"), "shard"); },
              ThrowsMessage<Error>("shard: not a checkpoint in a supported format"));
}

TEST(Detect, ReadsTheOnlyCheckpointOfAFolder) {
  const Checkpoint checkpoint = ReadCheckpoint(
      FolderOf({{"model.safetensors", Model()}, {"README.md", "# Model"}, {"config.json", "{}"}}));
  EXPECT_EQ(checkpoint.format, "safetensors");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Detect, LooksAtNoHiddenFileOfAFolder) {
  const Checkpoint checkpoint =
      ReadCheckpoint(FolderOf({{"._model.safetensors", Model()}, {"model.safetensors", Model()}}));
  EXPECT_EQ(checkpoint.root.members.size(), 1U);
}

TEST(Detect, RejectsSeveralCheckpoints) {
  EXPECT_THAT(
      [] {
        ReadCheckpoint(FolderOf({{"a", Model()}, {"b", Model()}, {"c", "text"}}));
      },
      Throws<Error>(AllOf(Property(&Error::what, StrEq("folder: directory with 2 checkpoints, 'a', "
                                                       "'b': name the one to mount")),
                          Property(&Error::code, ENOTUNIQ))));
}

// Returns the annotation that names the other files of the model; empty without it.
std::string TwinsIn(const Files& files) {
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(checkpoint.format, "safetensors");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  for (const auto& [name, text] : checkpoint.annotations) {
    if (name == "twins") return text;
  }
  return {};
}

TEST(Detect, PrefersSafetensors) {
  EXPECT_EQ(TwinsIn({{"model.safetensors", Model()}, {"pytorch_model.bin", Pickle()}}),
            R"(["pytorch_model.bin"])");
  EXPECT_EQ(TwinsIn({{"x.bin", Pickle()}, {"x.fp16.bin", Pickle()}, {"x.safetensors", Model()}}),
            R"(["x.fp16.bin","x.bin"])");
  EXPECT_EQ(TwinsIn({{"model.safetensors", Model()},
                     {"pytorch_model.bin.index.json", R"({"weight_map":{"w":"1.bin"}})"}}),
            R"(["pytorch_model.bin.index.json"])");
}

TEST(Detect, PrefersTheFullPrecision) {
  EXPECT_EQ(TwinsIn({{"unet.fp16.safetensors", Model()}, {"unet.safetensors", Model()}}),
            R"(["unet.fp16.safetensors"])");
}

TEST(Detect, CountsOnlyFilesWithTensors) {
  EXPECT_EQ(TwinsIn({{"a.safetensors", Model()}, {"b.pkl", Pickle()}}), "");
  EXPECT_EQ(TwinsIn({{"model.safetensors", Model()}, {"training_args.bin", Pickle()}}), "");
}

TEST(Detect, FindsCheckpointsBelowAFolder) {
  const std::string name = "model.safetensors";
  EXPECT_TRUE(IsOneCheckpoint(*FolderOf({{name, Model()}, {"1_Pooling/config.json", ""}}).folder));
  EXPECT_FALSE(IsOneCheckpoint(*FolderOf({{name, Model()}, {"2_Dense/" + name, ""}}).folder));
  EXPECT_FALSE(IsOneCheckpoint(*FolderOf({{"a.npy", ""}, {"b.npy", ""}}).folder));
}

TEST(Detect, ListsTheFilesOfAFolderWithoutACheckpoint) {
  EXPECT_THAT(
      [] {
        ReadCheckpoint(FolderOf({{"README.md", "# Model"}, {"notes", "hello"}}));
      },
      ThrowsMessage<Error>("folder: directory without a checkpoint in a supported format, but with "
                           "'README.md', 'notes'"));
}

TEST(Detect, RejectsAnEmptyFolder) {
  EXPECT_THAT([] { ReadCheckpoint(FolderOf({})); },
              ThrowsMessage<Error>("folder: directory without a checkpoint "
                                   "in a supported format"));
}

TEST(Detect, LooksForNoCheckpointInAThousandFiles) {
  Files files;
  for (int i = 0; i <= 1000; ++i) files[std::to_string(i)] = "";
  EXPECT_THAT([&] { ReadCheckpoint(FolderOf(files)); },
              ThrowsMessage<Error>("folder: directory of 1001 files, not a known sharded "
                                   "checkpoint: name the file to mount"));
}

TEST(Detect, NamesTheCorruptCheckpointOfAFolder) {
  EXPECT_THAT(
      [] {
        ReadCheckpoint(FolderOf({{"model", Model() + "x"}}));
      },
      ThrowsMessage<Error>("folder: model: the tensors need 4 bytes of data, but the file "
                           "has 5"));
}

TEST(Detect, HintsAtTheOtherFilesOfACheckpoint) {
  const std::string name = "model-00001-of-00002.safetensors";
  EXPECT_THAT(
      ReadCheckpoint(FileOf({{name, Model()}}, name)).warnings,
      ElementsAre("one of several files of a checkpoint: mount their directory for all of it"));
}

TEST(Detect, HintsAtTheFilesThatAFolderDoesNotHave) {
  EXPECT_THAT(ReadCheckpoint(FolderOf({{"model-00001-of-00002.safetensors", Model()}})).warnings,
              ElementsAre("incomplete checkpoint: only 'model-00001-of-00002.safetensors' found, "
                          "without its index"));
}

TEST(Detect, HintsAtNothingIfThereIsOneFileOfOne) {
  const std::string name = "model-00001-of-00001.safetensors";
  EXPECT_THAT(ReadCheckpoint(FileOf({{name, Model()}}, name)).warnings, IsEmpty());
}

TEST(Detect, HintsAtNothingInNamesThatCountNoFiles) {
  EXPECT_THAT(ReadCheckpoint(FileOf({{"best-of-7", Model()}}, "best-of-7")).warnings, IsEmpty());
  EXPECT_THAT(ReadCheckpoint(FileOf({{"1-of-", Model()}}, "1-of-")).warnings, IsEmpty());
  EXPECT_THAT(ReadCheckpoint(FileOf({{"-of-2", Model()}}, "-of-2")).warnings, IsEmpty());
  EXPECT_THAT(ReadCheckpoint(FileOf({{"1-of-000", Model()}}, "1-of-000")).warnings, IsEmpty());
}

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

TEST(DiagnoseUnknownFile, AModelOfOnnx) {
  EXPECT_THAT(RecognizeText("\x08\x0e\x3a\x7d\x0a\x11"s), HasSubstr("ONNX"));
  EXPECT_THAT(RecognizeText("\x08\x07\x12\x07pytorch"s), HasSubstr("ONNX"));
}

TEST(DiagnoseUnknownFile, AStateOfFlax) {
  EXPECT_THAT(RecognizeText("\x81\xa6params\x81\xa7"s), HasSubstr("MessagePack"));
  EXPECT_THAT(RecognizeText("\xde\0\x64\xa2k0\xc7"s), HasSubstr("MessagePack"));
}

TEST(DiagnoseUnknownFile, AnIndexOfTensorFlow) {
  EXPECT_THAT(RecognizeText("\0\0\1\x57\xfb\x80\x8b\x24\x75\x47\xdb"s), HasSubstr("TensorFlow"));
}

TEST(DiagnoseUnknownFile, AModelOfGgmlBeforeGguf) {
  EXPECT_THAT(RecognizeText("tjgg\3\0\0\0"s), HasSubstr("convert it to gguf"));
}

TEST(DiagnoseUnknownFile, NothingInBytesThatBeginAsAMap) {
  EXPECT_EQ(RecognizeText("\x81"s), "");
  EXPECT_EQ(RecognizeText("\x81\xa6par"s), "");
  EXPECT_EQ(RecognizeText("\xde"s), "");
  EXPECT_EQ(RecognizeText("\x08\x07"s), "");
}

TEST(DiagnoseUnknownFolder, TheFormatByTheNamesOfFiles) {
  const auto of = [](std::vector<std::string> names) {
    return std::string(DiagnoseUnknownFolder(names));
  };
  EXPECT_EQ(of({"fingerprint.pb", "saved_model.pb"}), "it is a TensorFlow SavedModel");
  EXPECT_EQ(of({"checkpoint", "model.data-00000-of-00001", "model.index"}),
            "it is a TensorFlow checkpoint");
  EXPECT_EQ(of({"_METADATA", "manifest.ocdbt"}), "it is an Orbax checkpoint");
  EXPECT_EQ(of({"README.md"}), "");
}

TEST(DiagnoseUnknownFile, NothingInOtherBytes) { EXPECT_EQ(RecognizeText("hello, world"), ""); }

TEST(DiagnoseUnknownFile, NothingInTheFirstByteOfAMark) { EXPECT_EQ(RecognizeText("\x80"), ""); }

}  // namespace
}  // namespace ckptfs
