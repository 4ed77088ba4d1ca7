#include "parser/format/tensorizer/file_header.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/format/tensorizer/development.h"

namespace ckptfs::tensorizer {
namespace {

constexpr uint32_t kEncryption = 3;  // The version in which all files are encrypted.
constexpr uint32_t kFlags = 4;       // The first one in which flags mean something.

constexpr uint64_t kIsEncrypted = 1;  // Flags.
constexpr uint64_t kHasTags = 2;

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
    Fail(EFBIG, "its index has {} bytes, but {} is the most", header.index_size, kMaxIndexSize);
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
    Fail(EFBIG, "has {} tensors, but {} is the most", header.count, kMaxTensors);
  }
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
    Fail(ENOTSUP, "has data version {}, but versions 1 to {} are known", header.version,
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

}  // namespace ckptfs::tensorizer
