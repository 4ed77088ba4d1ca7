#include "parser/format/tensorizer/tensor_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs::tensorizer {
namespace {

// The maximum size before the encryption section: a name and hashes of 64 KiB each.
constexpr uint64_t kMostBeforeEncryption = uint64_t{136} << 10U;  // Bytes.

void CheckPlace(uint64_t file_size, const FileHeader& header, const IndexEntry& entry) {
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
    Fail(EBADMSG, "data out of range: {} bytes at byte {} (the file has {}): it is truncated",
         entry.data_size, entry.data_offset, file_size);
  }
}

std::string Shown(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Throws Error if header and index disagree.
template <typename T>
void CheckSame(std::string_view what, const T& in_header, const T& in_index) {
  if (in_header == in_index) return;
  Fail(EBADMSG, "its {} is {} in its header, but {} in the index", what, in_header, in_index);
}

void ReadDescription(ByteReader& reader, const IndexEntry& entry) {
  CheckSame<unsigned>("type", reader.Read<uint8_t>("type"), static_cast<unsigned>(entry.kind));
  const auto name = reader.TakeText(reader.Read<uint16_t>("length of the name"), "name");
  if (name != entry.name) CheckSame("name", Quoted(name), Quoted(entry.name));
  const auto dtype = reader.TakeText(reader.Read<uint8_t>("length of the dtype"), "dtype");
  if (dtype != entry.dtype) CheckSame("dtype", Quoted(dtype), Quoted(entry.dtype));
  const auto dimensions = reader.Read<uint8_t>("number of dimensions");
  CheckSame<size_t>("number of dimensions", dimensions, entry.shape.size());
  CheckSame("shape", Shown(ReadShape(reader, dimensions, entry.is_long())), Shown(entry.shape));
}

// Stores a hash in `hashes`.
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
    Fail(EBADMSG, "has {} extra bytes after its hashes", section.remaining());
  }
  return hashes;
}

// Parses a header that begins with `bytes`; the rest, if any, is read from `file`.
TensorHeader Parse(std::span<std::byte> bytes, const ByteSourcePtr& file, bool is_encrypted,
                   const IndexEntry& entry) {
  const uint64_t size = entry.data_offset - entry.header_offset;
  ByteReader reader("its header", bytes, entry.header_offset);
  if (const auto found = reader.Read<uint64_t>("size"); found != size) {
    Fail(EBADMSG, "its header has {} bytes (expected {}, up to its data)", found, size);
  }
  TensorHeader result;
  result.module = reader.Read<uint16_t>("number of the module");
  ReadDescription(reader, entry);
  result.hashes = ReadHashes(reader, bytes);

  uint64_t end = reader.position();  // Of the parsed part.
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

bool CanDefer(const ByteSource& file, const FileHeader& header, const IndexEntry& entry) {
  CheckPlace(file.size(), header, entry);
  return entry.data_size > 0 && entry.data_offset - entry.header_offset <= kMostBeforeEncryption;
}

void CheckTensorHeader(std::span<const std::byte> bytes, const IndexEntry& entry) {
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  Parse(copy, nullptr, false, entry);
}

TensorHeader ReadTensorHeader(const ByteSourcePtr& file, const FileHeader& header,
                              const IndexEntry& entry, Budget& budget) {
  CheckPlace(file->size(), header, entry);
  const uint64_t size = entry.data_offset - entry.header_offset;
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(size, kMostBeforeEncryption)));
  budget.Grow(bytes.size());
  budget.Work(bytes.size());
  file->ReadAt(entry.header_offset, bytes);
  return Parse(bytes, file, header.is_encrypted, entry);
}

namespace {

struct Row {
  char kind;
  uint8_t size;  // Bytes.
  Dtype dtype;
};

constexpr Row kRows[] = {
    {'b', 1, Dtype::kBool},      {'u', 1, Dtype::kUint8},       {'i', 1, Dtype::kInt8},
    {'u', 2, Dtype::kUint16},    {'i', 2, Dtype::kInt16},       {'f', 2, Dtype::kFloat16},
    {'u', 4, Dtype::kUint32},    {'i', 4, Dtype::kInt32},       {'f', 4, Dtype::kFloat32},
    {'u', 8, Dtype::kUint64},    {'i', 8, Dtype::kInt64},       {'f', 8, Dtype::kFloat64},
    {'c', 8, Dtype::kComplex64}, {'c', 16, Dtype::kComplex128},
};

// A type of NumPy: "<f4", "|b1", "<M8[D]".
struct ArrayType {
  char order = 0;
  char kind = 0;
  std::optional<uint64_t> size;  // Bytes.
  bool is_plain = false;         // Nothing follows the size.
};

ArrayType ReadArrayType(std::string_view name) {
  ArrayType type;
  if (name.size() < 2) return type;
  type.order = name[0];
  type.kind = name[1];
  name.remove_prefix(2);
  const auto number = TakeNumber<uint32_t>(name);
  if (!number || std::string_view("biufcVMmSU").find(type.kind) == std::string_view::npos) {
    return type;
  }
  constexpr uint64_t kBytesOfCharacter = 4;
  type.size = type.kind == 'U' ? kBytesOfCharacter * *number : *number;
  type.is_plain = name.empty();
  return type;
}

std::optional<Dtype> DtypeOf(const ArrayType& type, std::string_view torch_name) {
  const bool is_ours = type.order == '<' || (type.order != '>' && type.size == 1);
  if (!is_ours || !type.is_plain) return std::nullopt;
  if (!torch_name.empty()) {
    const std::optional<Dtype> named = DtypeNamed(torch_name);
    const bool fits =
        named && type.kind == 'V' && ItemSize(*named) == type.size && ElementsPerItem(*named) == 1;
    return fits ? named : std::nullopt;
  }
  for (const Row& row : kRows) {
    if (row.kind == type.kind && row.size == type.size) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

StoredDtype ReadDtype(std::string_view stored) {
  constexpr std::string_view kTorch = "torch.";
  const size_t nul = stored.find('\0');
  std::string_view torch_name;
  if (nul != std::string_view::npos) {
    torch_name = stored.substr(nul + 1);
    if (!torch_name.starts_with(kTorch) || torch_name.size() == kTorch.size() ||
        torch_name.find('\0') != std::string_view::npos) {
      return {.foreign = std::string(stored)};
    }
  }
  const ArrayType type = ReadArrayType(stored.substr(0, nul));
  const std::string_view bare = torch_name.empty() ? torch_name : torch_name.substr(kTorch.size());
  StoredDtype dtype{.size = type.size, .is_object = type.kind == 'O'};
  if (const auto known = DtypeOf(type, bare)) {
    dtype.dtype = *known;
  } else {
    const bool is_new = !bare.empty() && !DtypeNamed(bare);
    dtype.foreign = is_new ? torch_name : stored;
  }
  return dtype;
}

}  // namespace ckptfs::tensorizer
