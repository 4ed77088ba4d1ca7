#include "parser/format/tensorizer/tensor_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"

namespace ckptfs::tensorizer {
namespace {

// What stands before the section on encryption cannot be longer: a name and hashes of 64 KiB each.
constexpr uint64_t kMostBeforeEncryption = uint64_t{136} << 10U;  // Bytes.

void CheckPlace(uint64_t file_size, const FileHeader& header, const Entry& entry) {
  if (entry.header_offset < header.index_end()) {
    Fail(EBADMSG, "its header is at byte {}, but the index ends at byte {}", entry.header_offset,
         header.index_end());
  }
  if (entry.data_offset < entry.header_offset) {
    Fail(EBADMSG, "its data is at byte {}, but its header at byte {}", entry.data_offset,
         entry.header_offset);
  }
  if (entry.data_offset > file_size) {
    Fail(EBADMSG, "its header ends at byte {}, but the file at byte {}: it is truncated",
         entry.data_offset, file_size);
  }
  if (entry.data_size > file_size - entry.data_offset) {
    Fail(EBADMSG, "its {} bytes at byte {} end after the {} of the file: it is truncated",
         entry.data_size, entry.data_offset, file_size);
  }
}

std::string Shown(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Throws Error if what the header says is not what the index says.
template <typename T>
void CheckSame(std::string_view what, const T& in_header, const T& in_index) {
  if (in_header == in_index) return;
  Fail(EBADMSG, "its {} is {} in its header, but {} in the index", what, in_header, in_index);
}

void ReadDescription(ByteReader& reader, const Entry& entry) {
  CheckSame<unsigned>("type", reader.Read<uint8_t>("type"), static_cast<unsigned>(entry.kind));
  const auto name = reader.TakeText(reader.Read<uint16_t>("length of the name"), "name");
  if (name != entry.name) CheckSame("name", Quoted(name), Quoted(entry.name));
  const auto dtype = reader.TakeText(reader.Read<uint8_t>("length of the dtype"), "dtype");
  if (dtype != entry.dtype) CheckSame("dtype", Quoted(dtype), Quoted(entry.dtype));
  const auto dimensions = reader.Read<uint8_t>("number of dimensions");
  CheckSame<size_t>("number of dimensions", dimensions, entry.shape.size());
  CheckSame("shape", Shown(ReadShape(reader, dimensions, entry.is_long)), Shown(entry.shape));
}

// Puts a hash where `hashes` has it.
void AddHash(unsigned type, std::span<const std::byte> value, Hashes& hashes) {
  constexpr unsigned kCrc32 = 0;
  constexpr unsigned kSha256 = 1;
  const auto check = [&](bool is_known, size_t want) {
    if (is_known) Fail(EBADMSG, "has two hashes of type {}", type);
    if (value.size() == want) return;
    Fail(EBADMSG, "a hash of type {} has {} bytes, but needs {}", type, value.size(), want);
  };
  if (type == kCrc32) {
    check(hashes.crc32.has_value(), sizeof(uint32_t));
    hashes.crc32 = ByteReader("hash", value).Read<uint32_t>("value");
  } else if (type == kSha256) {
    check(hashes.sha256.has_value(), sizeof(*hashes.sha256));
    std::ranges::copy(value, hashes.sha256.emplace().begin());
  } else {
    Fail(EBADMSG, "has a hash of the unknown type {}", type);
  }
}

Hashes ReadHashes(ByteReader& reader, std::span<std::byte> header) {
  const auto length = reader.Read<uint16_t>("length of the hashes");
  const uint64_t begin = reader.position();
  const size_t offset = reader.offset();
  ByteReader section("hashes", reader.Take(length, "hashes"), begin);
  Hashes hashes;
  for (auto count = section.Read<uint8_t>("number of hashes"); count > 0; --count) {
    const auto type = section.Read<uint8_t>("type of a hash");
    const auto size = section.Read<uint8_t>("length of a hash");
    const size_t place = offset + section.offset();
    AddHash(type, section.Take(size, "hash"), hashes);
    std::ranges::fill(header.subspan(place, size), std::byte{});
  }
  if (section.remaining() != 0) {
    Fail(EBADMSG, "has {} bytes behind its hashes that belong to nothing", section.remaining());
  }
  return hashes;
}

// Reads what begins with `bytes`. The rest, if there is any, is read from `file`.
TensorHeader Parse(std::span<std::byte> bytes, const ByteSourcePtr& file, bool is_encrypted,
                   const Entry& entry) {
  const uint64_t size = entry.data_offset - entry.header_offset;
  ByteReader reader("its header", bytes, entry.header_offset);
  if (const auto found = reader.Read<uint64_t>("size"); found != size) {
    Fail(EBADMSG, "its header has {} bytes, but its data is {} bytes behind it", found, size);
  }
  TensorHeader result;
  result.module = reader.Read<uint16_t>("number of the module");
  ReadDescription(reader, entry);
  result.hashes = ReadHashes(reader, bytes);

  uint64_t end = reader.position();  // Of what is understood.
  result.hashed.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(reader.offset()));
  if (is_encrypted) {
    const auto length = reader.Read<uint64_t>("length of the section on encryption");
    result.encryption = {file, reader.position(), length};
    end = reader.position();
    if (length > entry.data_offset - end) {
      Fail(EBADMSG, "the section on its encryption needs {} bytes, but only {} are left", length,
           entry.data_offset - end);
    }
    end += length;
  }
  std::array<std::byte, sizeof(int64_t)> last = {};
  if (entry.data_offset - end != last.size()) {
    Fail(EBADMSG, "its header has {} bytes where the length of its data alone should be",
         entry.data_offset - end);
  }
  if (bytes.size() == size) {
    std::ranges::copy(std::span(bytes).last(last.size()), last.begin());
  } else {
    file->ReadAt(end, last);
  }
  const auto data_size = ByteReader("its header", last, end).Read<int64_t>("length of the data");
  if (data_size < 0 || static_cast<uint64_t>(data_size) != entry.data_size) {
    CheckSame("length", std::to_string(data_size), std::to_string(entry.data_size));
  }
  result.hashed.insert(result.hashed.end(), last.begin(), last.end());
  return result;
}

}  // namespace

bool CanWait(const ByteSource& file, const FileHeader& header, const Entry& entry) {
  CheckPlace(file.size(), header, entry);
  return entry.data_size > 0 && entry.data_offset - entry.header_offset <= kMostBeforeEncryption;
}

void CheckTensorHeader(std::span<const std::byte> bytes, const Entry& entry) {
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  Parse(copy, nullptr, false, entry);
}

TensorHeader ReadTensorHeader(const ByteSourcePtr& file, const FileHeader& header,
                              const Entry& entry, Budget& budget) {
  CheckPlace(file->size(), header, entry);
  const uint64_t size = entry.data_offset - entry.header_offset;
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(size, kMostBeforeEncryption)));
  budget.Grow(bytes.size());
  budget.Work(bytes.size());
  file->ReadAt(entry.header_offset, bytes);
  return Parse(bytes, file, header.is_encrypted, entry);
}

}  // namespace ckptfs::tensorizer
