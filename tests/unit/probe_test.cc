// Each format inspects the ends of files of any length, which may be shorter than its mark.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/format.h"
#include "parser/format/common/diagnose.h"

namespace ckptfs {
namespace {

using std::string_view_literals::operator""sv;

// The marks at the beginning, in the middle or at the end of files.
constexpr std::string_view kMarks[] = {
    "\0\0\0\0\0\0\0\0"sv,
    "\xff\xff\xff\xff\xff\xff\xff\xff"sv,
    "\x02\0\0\0\0\0\0\0{}"sv,
    "\x40\0\0\0\0\0\0\0        "sv,
    "GGUF\3\0\0\0"sv,
    "GGUF\0\0\0\3"sv,
    "|TZR|\0\0\0\0"sv,
    "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"sv,
    "{\"a\":1}\n\x93NUMPY\1\0"sv,
    "PK\3\4\24\0\0\0"sv,
    "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv,
    "PK\6\7\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0PK\5\6"sv,
    "PK\6\6\x2c\0\0\0\0\0\0\0"sv,
    "\x1f\x8b\x08\x1f\0\0\0\0\0\0"sv,
    "\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3."sv,
    "\x80\5\x95\xff\xff\xff\xff\xff\xff\xff\xff}."sv,
    "(dp0\n."sv,
    "]."sv,
    "ccollections\nOrderedDict\n(tR."sv,
    "c\n\n."sv,
    "L119547037146038801333356L\n.I1001\n."sv,
    "./._pickle"sv,
    "storages\0\0\0"sv,
    "{\"cls_metadata\"}\x10\0\0\0\0\0\0\0"sv,
    "{}\2\0\0\0\0\0\0\0"sv,
    "}\1\0\0\0\0\0\0\0"sv,
    "ustar\00000"sv,
};

// A buffer of exactly these bytes, so that a sanitizer detects reads beyond them.
class Exact {
 public:
  explicit Exact(std::string_view bytes)
      : size_(bytes.size()), bytes_(std::make_unique<std::byte[]>(size_)) {
    std::ranges::copy(std::as_bytes(std::span(bytes)), bytes_.get());
  }

  std::span<const std::byte> span() const { return {bytes_.get(), size_}; }

 private:
  size_t size_;
  std::unique_ptr<std::byte[]> bytes_;
};

size_t AskAll(const Probe& probe) {
  size_t count = 0;
  for (const Format* format : Formats()) count += format->matches(probe) ? 1 : 0;
  for (const FolderFormat* format : FolderFormats()) {
    for (const std::string_view name :
         {""sv, "a"sv, ".metadata"sv, "meta.json"sv, "m.gguf"sv, "m-00001-of-00002.gguf"sv,
          "__0_0.distcp"sv, "m.safetensors.index.json"sv}) {
      count += format->is_index(name, probe) ? 1 : 0;
    }
  }
  return count + DiagnoseUnknownFile(probe).text.size();
}

// The first and the last `length` bytes of `mark` repeated.
std::array<std::string, 4> EndsOf(std::string_view mark, size_t length) {
  std::string repeated;
  while (repeated.size() < length + mark.size()) repeated += mark;
  const std::string zeros(length, '\0');
  std::string begins = zeros;
  std::string ends = zeros;
  const size_t count = std::min(length, mark.size());
  begins.replace(0, count, mark.substr(0, count));
  ends.replace(length - count, count, mark.substr(mark.size() - count));
  return {repeated.substr(0, length), repeated.substr(repeated.size() - length), begins, ends};
}

class ProbeTest : public testing::TestWithParam<std::string_view> {};

TEST_P(ProbeTest, MayBeOfAnyLength) {
  constexpr size_t kMost = 64;
  constexpr size_t kLongestMark = 24;  // But for a few. Beyond, every fifth length.
  constexpr uint64_t kSizes[] = {0, 9, 65, UINT64_MAX};
  size_t found = 0;
  for (size_t length = 0; length <= kMost; length += length < kLongestMark ? 1 : 5) {
    for (const std::string& text : EndsOf(GetParam(), length)) {
      const Exact whole(text);
      found += AskAll({.size = length, .head = whole.span(), .tail = whole.span()});
      for (const size_t other : {size_t{0}, size_t{1}, size_t{8}, size_t{22}, length}) {
        const Exact head(text.substr(0, std::min(other, length)));
        const Exact tail(text.substr(length - std::min(other, length)));
        for (const uint64_t size : kSizes) {
          found += AskAll({.size = size, .head = head.span(), .tail = whole.span()});
          found += AskAll({.size = size, .head = whole.span(), .tail = tail.span()});
        }
      }
    }
  }
  EXPECT_GT(found, 0U);  // The marks are those that formats look for, or that are recognised.
}

INSTANTIATE_TEST_SUITE_P(AllMarks, ProbeTest, testing::ValuesIn(kMarks));

// Also checks that the marks above are not misspelt.
TEST(Probe, IsMatchedByItsFormat) {
  const auto name_of = [](std::string_view text, uint64_t size) -> std::string_view {
    const Exact file(text);
    const Probe probe{.size = size, .head = file.span(), .tail = file.span()};
    for (const Format* format : Formats()) {
      if (format->matches(probe)) return format->name;
    }
    return "";
  };
  EXPECT_EQ(name_of("GGUF", 4), "gguf");
  EXPECT_EQ(name_of("\2\0\0\0\0\0\0\0{}"sv, 10), "safetensors");
  EXPECT_EQ(name_of("\x93NUMPY", 6), "npy");
  EXPECT_EQ(name_of("PK\3\4", 4), "zip");
  EXPECT_EQ(name_of("\x1f\x8b\x08", 3), "gzip");
  EXPECT_EQ(name_of("\x80\2", 2), "pickle");
  EXPECT_EQ(name_of("].", 2), "pickle");
  EXPECT_EQ(name_of("{\"cls_metadata\"}\x10\0\0\0\0\0\0\0"sv, 24), "tensordict");
  EXPECT_EQ(name_of("xPK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv, 23), "zip");
  EXPECT_EQ(name_of("", 0), "");
}

}  // namespace
}  // namespace ckptfs
