#include "parser/format/tensorizer/index.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "parser/base/byte_reader.h"
#include "parser/base/dtype.h"
#include "parser/base/error.h"

namespace ckptfs::tensorizer {
namespace {

constexpr uint32_t kEncryption = 3;  // The version in which all files are encrypted.
constexpr uint32_t kFlags = 4;       // The first one in which flags mean something.

constexpr uint64_t kIsEncrypted = 1;  // Flags.

constexpr uint64_t kMaxIndexSize = uint64_t{64} << 20U;  // Bytes.
constexpr uint64_t kMaxTensors = 1'000'000;
constexpr uint64_t kLeastEntry = 31;  // Bytes of one: those of the numbers, of a name and a type.
constexpr uint64_t kTagSize = 4;      // Bytes.

uint64_t ReadFlags(ByteReader& reader) {
  constexpr size_t kSizeOfFlags = 32;  // Bytes.
  const auto flags = reader.Read<uint64_t>("feature flags");
  const auto rest = reader.Take(kSizeOfFlags - sizeof flags, "feature flags");
  const bool is_large = std::ranges::any_of(rest, [](std::byte b) { return b != std::byte{}; });
  if (is_large || flags > (kIsEncrypted | kHasTags)) {
    Fail(ENOTSUP, "has feature flags that no release of tensorizer knows");
  }
  return flags;
}

void CheckIndex(const FileHeader& header, uint64_t file_size) {
  if (header.index_size > kMaxIndexSize) {
    Fail(EFBIG, "its index has {} bytes (maximum {})", header.index_size, kMaxIndexSize);
  }
  if (const uint64_t rest = file_size - FileHeader::kSize; header.index_size > rest) {
    Fail(EBADMSG, "its index needs {} bytes, but only {} are left: the file is truncated",
         header.index_size, rest);
  }
  if (header.count == 0) {
    Fail(EBADMSG, "has no tensors: it was not written to its end, or nothing was saved");
  }
  const uint64_t room = header.index_size / (kLeastEntry + (header.has_tags ? kTagSize : 0));
  if (header.count > room) {
    Fail(EBADMSG, "has {} tensors, but its index of {} bytes has room for {} at most", header.count,
         header.index_size, room);
  }
  if (header.count > kMaxTensors) {
    Fail(EFBIG, "has {} tensors (maximum {})", header.count, kMaxTensors);
  }
}

[[noreturn]] void Refuse(std::string_view what) {
  Fail(ENOTSUP, "was written by an unreleased development version of tensorizer, {}", what);
}

constexpr size_t kDevelopmentMark = 11;  // Bytes of the index that identify unreleased layouts.

// Throws Error(ENOTSUP) if the begin of the index identifies a layout that RefuseDevelopmentLayout
// describes, too.
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
  // A name of 1 or 5 bytes beginning with NUL would look the same; such names do not occur.
  const auto tag = ByteReader("index", index).Read<uint32_t>("tag");
  if (tag == 1 || tag == 5) Refuse("whose index has tags but no flag for them");
}

}  // namespace

FileHeader ReadFileHeader(const ByteSource& file) {
  std::array<std::byte, FileHeader::kSize + kDevelopmentMark> buffer = {};
  const auto bytes =
      std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), file.size())));
  file.ReadAt(0, bytes);
  ByteReader reader("file header", bytes);
  reader.Take(kMagic.size(), "magic");
  FileHeader header;
  header.version = reader.Read<uint32_t>("data version");
  if (header.version < 1 || header.version > FileHeader::kNewest) {
    Fail(ENOTSUP, "unsupported data version {} (supported: 1 to {})", header.version,
         FileHeader::kNewest);
  }
  header.flags = ReadFlags(reader);
  header.has_tags = (header.flags & kHasTags) != 0;
  if (header.has_tags && header.version < FileHeader::kNewest) {
    Fail(ENOTSUP, "has a feature flag of data version {}, but its version is {}",
         FileHeader::kNewest, header.version);
  }
  header.is_encrypted = header.version == kEncryption ||
                        (header.version >= kFlags && (header.flags & kIsEncrypted) != 0);
  header.data_bytes = reader.Read<uint64_t>("bytes of data");
  reader.Read<uint64_t>("unused bytes");
  header.count = reader.Read<uint64_t>("number of tensors");
  header.index_size = reader.Read<uint64_t>("length of the index");
  if (header.is_unreleased()) {
    RefuseDevelopmentHead(header, reader.Take(reader.remaining(), "beginning of the index"));
  }
  CheckIndex(header, file.size());
  return header;
}

namespace {

// Reads and validates an entry.
IndexEntry ReadEntry(ByteReader& reader, bool has_tags) {
  const uint64_t place = reader.position();
  IndexEntry entry = ReadIndexEntry(reader, has_tags);
  if (entry.tag != IndexEntry::kTag && entry.tag != IndexEntry::kLongTag) {
    Fail(EBADMSG, "index at byte {}: an entry has the tag {}, but {} and {} are known", place,
         entry.tag, IndexEntry::kTag, IndexEntry::kLongTag);
  }
  if (entry.name.empty()) {
    const uint64_t name = place + (has_tags ? kTagSize : 0) + sizeof(uint16_t);
    Fail(EBADMSG, "index at byte {}: a name is empty", name);
  }
  if (entry.kind > Kind::kStateDict) {
    Fail(EBADMSG, "tensor {}: is of type {}, but 0, 1 and 2 are known", Quoted(entry.name),
         static_cast<uint8_t>(entry.kind));
  }
  if (entry.shape.size() > kMaxDimensions) {
    Fail(EBADMSG, "tensor {}: too many dimensions (found {}, maximum {})", Quoted(entry.name),
         entry.shape.size(), kMaxDimensions);
  }
  return entry;
}

}  // namespace

Index ReadIndex(const ByteSource& file, const FileHeader& header, Budget& budget) {
  budget.Grow(header.index_size);
  budget.Charge(header.index_size);
  Index index{.bytes = std::vector<std::byte>(static_cast<size_t>(header.index_size)),
              .entries = {}};
  // The header of the first tensor, which RefuseDevelopmentLayout reads, is usually next.
  const ByteRange announced{
      .offset = FileHeader::kSize,
      .length = std::min(header.index_size + sizeof(uint64_t), file.size() - FileHeader::kSize)};
  file.Prefetch({&announced, 1});
  file.ReadAt(FileHeader::kSize, index.bytes);
  const auto end = std::ranges::find_if(index.bytes.rbegin(), index.bytes.rend(),
                                        [](std::byte b) { return b != std::byte{}; });
  const auto used = static_cast<size_t>(index.bytes.rend() - end);  // Zeros follow.

  ByteReader reader("index", index.bytes, FileHeader::kSize);
  for (uint64_t i = 0; i < header.count; ++i) {
    // If the index has no room for the entries of a call, tensorizer omits all of them, but
    // includes their tensors in the count.
    if (reader.offset() >= used) {
      Fail(
          EBADMSG,
          "has only {} of {} tensors in its index: the index was full when the others were written",
          i, header.count);
    }
    IndexEntry entry = ReadEntry(reader, header.has_tags);
    budget.Charge(2 * sizeof(IndexEntry) + entry.shape.size() * sizeof(uint64_t));
    index.entries.push_back(std::move(entry));
  }
  return index;
}

void RefuseDevelopmentLayout(const ByteSource& file, const Index& index) {
  // Any header identifies such a layout. Over a network only the first one is read; the others are
  // checked with their data.
  const std::span all(index.entries);
  const size_t count = file.is_remote() ? std::min<size_t>(all.size(), 1) : all.size();
  for (const IndexEntry& entry : all.first(count)) {
    std::array<std::byte, sizeof(uint64_t)> bytes = {};
    if (entry.header_offset > file.size() || bytes.size() > file.size() - entry.header_offset) {
      continue;
    }
    file.ReadAt(entry.header_offset, bytes);
    const auto size = ByteReader("tensor header", bytes).Read<uint64_t>("size");
    if (entry.data_offset - entry.header_offset != size) {
      Refuse("whose data does not follow its headers");
    }
  }
}

}  // namespace ckptfs::tensorizer
