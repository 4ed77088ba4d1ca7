// The number of round trips until a checkpoint is open.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/counting_source.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/safetensors.h"
#include "tests/support/sources.h"
#include "tests/support/tensorizer_writer.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using std::string_literals::operator""s;
using testing::ThrowsMessage;

std::shared_ptr<CountingSource> Remote(ByteSourcePtr file) {
  return std::make_shared<CountingSource>(std::move(file));
}

std::shared_ptr<CountingSource> Remote(const std::string& file) {
  return Remote(std::make_shared<MemorySource>(file));
}

// A state dict of `count` tensors, each of which has 100,000 zeros.
ByteSourcePtr TorchFile(int count) {
  constexpr int64_t kSize = 100'000;
  PickleWriter pickle;
  pickle.EmptyDict();
  for (int i = 0; i < count; ++i) {
    pickle.Text(fmt::format("transformer.h.{}.attn.weight", i))
        .Tensor("Byte", std::to_string(i), kSize, {.offset = 0, .shape = {kSize}, .stride = {1}})
        .SetItem();
  }
  ZipWriter zip;
  zip.Add("archive/data.pkl", pickle.Finish()).Add("archive/byteorder", "little");
  for (int i = 0; i < count; ++i) zip.AddZeros(fmt::format("archive/data/{}", i), kSize);
  return zip.Add("archive/version", "3\n").Source();
}

TEST(RemoteFormats, OpenTwentyThousandTensorsOfTorchInFourRoundTrips) {
  const auto file = Remote(TorchFile(20'000));
  const Checkpoint checkpoint = ReadCheckpoint(file);
  EXPECT_EQ(checkpoint.root.members.size(), 20'000U);
  EXPECT_LE(file->round_trips(), 4U);
  EXPECT_LT(file->fetched(), 20'000'000U);
}

TEST(RemoteFormats, ReadATensorOfTorchInOneRoundTrip) {
  const auto file = Remote(TorchFile(100));
  const Checkpoint checkpoint = ReadCheckpoint(file);
  const uint64_t before = file->round_trips();
  EXPECT_EQ(TextOf(checkpoint, "transformer.h.50.attn.weight"), std::string(100'000, '\0'));
  EXPECT_EQ(file->round_trips(), before + 1);
}

TEST(RemoteFormats, OpenALongHeaderOfSafetensorsInThreeRoundTrips) {
  std::string header = "{";
  std::string data;
  for (int i = 0; i < 20'000; ++i) {
    header += fmt::format(R"({}"layer.{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                          i == 0 ? "" : ",", i, i, i + 1);
    data += 'x';
  }
  data += std::string(1'000'000, 'y');
  header += R"(,"large":{"dtype":"U8","shape":[1000000],"data_offsets":[20000,1020000]}})";
  const auto file = Remote(SafetensorsFile(header, data));
  EXPECT_EQ(ReadCheckpoint(file).root.members.size(), 20'001U);
  EXPECT_LE(file->round_trips(), 3U);
}

// A thousand tensors of 10,000 bytes. `in_index` is the index entry of number 500.
std::string TensorizerFile(const TensorizerWriter::Tensor& number500,
                           const TensorizerWriter::Tensor& in_index) {
  TensorizerWriter writer;
  for (int i = 0; i < 1'000; ++i) {
    if (i == 500) {
      writer.Add(number500, in_index);
    } else {
      writer.Add({.name = fmt::format("w{}", i),
                  .dtype = "|u1",
                  .shape = {10'000},
                  .data = std::string(10'000, 'x')});
    }
  }
  return writer.Finish();
}

const TensorizerWriter::Tensor kMiddle{
    .name = "middle", .dtype = "|u1", .shape = {4}, .data = "abcd"};

TEST(RemoteFormats, OpenAThousandTensorsOfTensorizerInThreeRoundTrips) {
  const auto file = Remote(TensorizerFile(kMiddle, kMiddle));
  const Checkpoint checkpoint = ReadCheckpoint(file);
  EXPECT_LE(file->round_trips(), 3U);
  EXPECT_EQ(TextOf(checkpoint, "middle"), "abcd");
  EXPECT_TRUE(TensorAt(checkpoint, "middle").is_in_file);
}

TEST(RemoteFormats, RejectATensorOfTensorizerWithADifferentHeader) {
  TensorizerWriter::Tensor other = kMiddle;
  other.dtype = "|i1";
  const Checkpoint checkpoint = ReadCheckpoint(Remote(TensorizerFile(kMiddle, other)));
  EXPECT_THAT([&] { TextOf(checkpoint, "middle"); },
              ThrowsMessage<Error>("its dtype is '|u1' in its header, but '|i1' in the index"));
  EXPECT_EQ(TextOf(checkpoint, "w999"), std::string(10'000, 'x'));
}

TEST(RemoteFormats, ReadTheHeadsOfArraysSideBySide) {
  const std::string head =
      "\x93NUMPY\1\0\x46\0{'descr': '|u1', 'fortran_order': False, 'shape': "
      "(100000,), }        \n"s;
  ZipWriter zip({.alignment = 0});
  const std::string array = head + std::string(100'000, 'x');
  const ZipEntry entry{.flags = 0, .has_descriptor = false};
  for (int i = 0; i < 100; ++i) zip.Add(fmt::format("{}.npy", i), array, entry);
  const auto file = Remote(zip.Source());
  EXPECT_EQ(ReadCheckpoint(file).root.members.size(), 100U);
  EXPECT_LE(file->round_trips(), 2U + 100 / 8 + 1);
}

}  // namespace
}  // namespace ckptfs
