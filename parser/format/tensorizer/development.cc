#include "parser/format/tensorizer/development.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string_view>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"

namespace ckptfs::tensorizer {
namespace {

[[noreturn]] void Refuse(std::string_view what) {
  Fail(ENOTSUP, "was written by an unreleased development version of tensorizer, {}", what);
}

}  // namespace

void RefuseDevelopmentHead(const FileHeader& header, std::span<const std::byte> index) {
  if (index.size() < kDevelopmentMark) return;
  constexpr uint64_t kBlockSize = 45;
  constexpr std::array kBlock = {std::byte{1}, std::byte{3}, std::byte{1}};
  const auto index_begin =
      ByteReader("layout", index.subspan(kBlock.size())).Read<uint64_t>("start of the index");
  if (header.index_size == kBlockSize && index_begin == FileHeader::kSize + kBlockSize &&
      std::ranges::equal(index.first(kBlock.size()), kBlock)) {
    Refuse("whose offsets are relative");
  }
  // A name of 1 or 5 bytes that begins with NUL would look so, too; nobody has such.
  const auto tag = ByteReader("index", index).Read<uint32_t>("tag");
  if (tag == 1 || tag == 5) Refuse("whose index has tags but no flag that says so");
}

void RefuseDevelopmentLayout(const ByteSource& file, const Index& index) {
  // Each header of a draft tells it. Over a network the first one has to do, because no data are
  // shown whose header does not lie before them.
  const std::span all(index.entries);
  const size_t count = file.is_remote() ? std::min<size_t>(all.size(), 1) : all.size();
  for (const Entry& entry : all.first(count)) {
    std::array<std::byte, sizeof(uint64_t)> bytes = {};
    if (entry.header_offset > file.size() || bytes.size() > file.size() - entry.header_offset) {
      continue;
    }
    file.ReadAt(entry.header_offset, bytes);
    const auto size = ByteReader("tensor header", bytes).Read<uint64_t>("size");
    if (entry.data_offset - entry.header_offset != size) {
      Refuse("whose data does not lie behind its headers");
    }
  }
}

}  // namespace ckptfs::tensorizer
