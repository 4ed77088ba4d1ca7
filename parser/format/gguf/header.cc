#include "parser/format/gguf/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory_resource>
#include <optional>
#include <unordered_set>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/checkpoint.h"
#include "parser/format/gguf/file.h"

namespace ckptfs::gguf {
namespace {

constexpr uint32_t kNewest = 3;  // Version.
constexpr uint64_t kMostTensors = 2'000'000;
constexpr uint64_t kLongestName = 65'535;  // Bytes; ggml takes 63, its writers more.
constexpr uint32_t kMostDimensions = 8;    // ggml has 4.

// Reads the version and sets the number format of `reader` accordingly.
void ReadFormat(HeaderReader& reader, GgufHeader& header) {
  reader.Read<uint32_t>("magic");
  auto version = reader.Read<uint32_t>("version");
  header.is_big_endian = (version & 0xFFFFU) == 0;
  if (header.is_big_endian) version = __builtin_bswap32(version);
  if (version < 1 || version > kNewest) {
    Fail(ENOTSUP, "unsupported version {} (supported: 1 to {})", version, kNewest);
  }
  header.version = version;
  reader.SetFormat({.is_big_endian = header.is_big_endian, .is_narrow = version == 1});
}

// The minimum size of a pair: a key of one byte and a value of one byte.
uint64_t LeastPair(const HeaderReader& reader) {
  return reader.count_size() + sizeof(uint32_t) + 1 + 1;
}

// The minimum size of an entry: that of a scalar without a name.
uint64_t LeastEntry(const HeaderReader& reader) {
  return reader.count_size() + 2 * sizeof(uint32_t) + sizeof(uint64_t);
}

void CheckShape(const std::vector<uint64_t>& shape) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  uint64_t elements = 1;
  bool is_too_many = false;
  for (const uint64_t size : shape) {
    if (size > kMost) Fail(EOVERFLOW, "has a dimension of {} (maximum {})", size, kMost);
    is_too_many = is_too_many || __builtin_mul_overflow(elements, size, &elements);
  }
  const bool is_empty = std::ranges::count(shape, uint64_t{0}) != 0;
  if (!is_empty && (is_too_many || elements >= kMost)) {
    Fail(EOVERFLOW, "has a shape of 2^63 elements or more");
  }
}

void ReadTensorInfo(HeaderReader& reader, TensorInfo& entry) {
  const auto dimensions = reader.Read<uint32_t>("number of dimensions");
  if (dimensions > kMostDimensions) {
    Fail(EBADMSG, "too many dimensions (found {}, maximum {})", dimensions, kMostDimensions);
  }
  entry.shape.resize(dimensions);
  for (uint64_t& size : entry.shape) size = reader.ReadCount("dimension");
  std::ranges::reverse(entry.shape);
  CheckShape(entry.shape);
  entry.type = reader.Read<uint32_t>("type");
  entry.offset = reader.Read<uint64_t>("offset");
}

std::vector<TensorInfo> ReadTensorInfos(HeaderReader& reader, uint64_t count, Budget& budget) {
  std::vector<TensorInfo> entries;
  std::pmr::unordered_set<std::string, SecretHash, std::equal_to<>> names(&budget);
  for (uint64_t i = 0; i < count; ++i) {
    TensorInfo entry;
    reader.ReadText("name of a tensor", kLongestName, entry.name);
    // The tensor and its file contain the name again.
    budget.Charge(2 * sizeof(TensorInfo) + 2 * sizeof(Member) + 4 * entry.name.size());
    if (!names.insert(entry.name).second) {
      Fail(EBADMSG, "tensor {}: occurs twice", Quoted(entry.name));
    }
    try {
      ReadTensorInfo(reader, entry);
    } catch (const Error& e) {
      throw WithContext("tensor " + Quoted(entry.name), e);
    }
    budget.Charge(entry.shape.size() * 2 * sizeof(uint64_t));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

GgufHeader ReadHeader(const ByteSource& file, Budget& budget) {
  HeaderReader reader(file, budget);
  GgufHeader header;
  ReadFormat(reader, header);
  const uint64_t tensors = reader.ReadCount("number of tensors");
  const uint64_t pairs = reader.ReadCount("number of pairs");
  if (tensors > kMostTensors) {
    Fail(EFBIG, "has {} tensors (maximum {})", tensors, kMostTensors);
  }
  reader.CheckCount(tensors, LeastEntry(reader), "tensors");
  reader.CheckCount(pairs, LeastPair(reader), "pairs of metadata");
  header.metadata = ReadMetadata(reader, pairs, budget);
  reader.CheckCount(tensors, LeastEntry(reader), "tensors");
  header.entries = ReadTensorInfos(reader, tensors, budget);
  header.end = reader.position();
  return header;
}

namespace {

// Rounds up to a multiple of `alignment`, a power of two. Returns nothing on overflow.
std::optional<uint64_t> Padded(uint64_t offset, uint64_t alignment) {
  uint64_t padded = 0;
  if (__builtin_add_overflow(offset, alignment - 1, &padded)) return std::nullopt;
  return padded & ~(alignment - 1);
}

// Returns the begin of the data. A file without tensors has no padding. Neither the end of a header
// nor an alignment is near 2^64.
uint64_t DataOffset(const GgufHeader& header, uint64_t alignment) {
  return header.entries.empty() ? header.end : *Padded(header.end, alignment);
}

// Returns the size of a tensor of a known type, in bytes.
uint64_t SizeOf(const TensorInfo& entry, const StoredType& type) {
  const uint64_t row = entry.shape.empty() ? 1 : entry.shape.back();
  if (row % type.elements != 0) {
    Fail(EBADMSG, "its rows have {} elements, which are not whole blocks of {} of type {}", row,
         type.elements, type.name);
  }
  if (std::ranges::count(entry.shape, uint64_t{0}) != 0) return 0;
  uint64_t size = type.bytes;
  for (const uint64_t& count : entry.shape) {
    const bool is_row = &count == &entry.shape.back();
    const uint64_t factor = is_row ? count / type.elements : count;
    if (__builtin_mul_overflow(size, factor, &size) || size >> 63U != 0) {
      Fail(EOVERFLOW, "its shape needs 2^63 bytes or more");
    }
  }
  return size;
}

using Order = std::pmr::vector<std::pair<uint64_t, size_t>>;  // Offsets, and numbers of entries.

Order ByOffset(const GgufHeader& header, Budget& budget) {
  Order order(&budget);
  order.reserve(header.entries.size());
  for (const TensorInfo& entry : header.entries) order.emplace_back(entry.offset, order.size());
  std::ranges::sort(order);
  return order;
}

// Returns the length of a tensor of an unknown type, which extends to the next tensor.
uint64_t Reach(const Order& order, uint64_t offset, uint64_t data_size) {
  const auto next = std::ranges::upper_bound(order, offset, {}, &Order::value_type::first);
  const uint64_t end = next == order.end() ? data_size : std::min(next->first, data_size);
  return end > offset ? end - offset : 0;
}

DataRange LocateTensor(const TensorInfo& entry, uint64_t data_offset, uint64_t alignment,
                       uint64_t file_size, const Order& order) {
  if (entry.offset % alignment != 0) {
    Fail(EBADMSG, "is at byte {} of the data, which is not a multiple of the alignment {}",
         entry.offset, alignment);
  }
  DataRange place;
  if (__builtin_add_overflow(data_offset, entry.offset, &place.offset)) {
    Fail(EOVERFLOW, "is at byte {} of the data, which is beyond 2^64", entry.offset);
  }
  const uint64_t data_size = file_size > data_offset ? file_size - data_offset : 0;
  const StoredType* type = StoredTypeOf(entry.type);
  if (type == nullptr) {
    if (entry.offset > data_size) {
      Fail(EBADMSG, "is at byte {}, but the file has {}: it is truncated", place.offset, file_size);
    }
    place.length = Reach(order, entry.offset, data_size);
    return place;
  }
  try {
    place.length = SizeOf(entry, *type);
  } catch (const Error& e) {
    if (e.code() != EBADMSG) throw;
    place.error = e;
    return place;
  }
  if (place.length != 0 && (entry.offset > data_size || place.length > data_size - entry.offset)) {
    Fail(EBADMSG, "data out of range: {} bytes at byte {} (the file has {}): it is truncated",
         place.length, place.offset, file_size);
  }
  return place;
}

std::string Subject(const TensorInfo& entry) { return "tensor " + Quoted(entry.name); }

void CheckOverlaps(const GgufHeader& header, const Order& order,
                   const std::vector<DataRange>& places) {
  uint64_t end = 0;
  const TensorInfo* before = nullptr;
  for (const auto& [offset, number] : order) {
    const DataRange& place = places[number];
    if (place.length == 0) continue;
    const TensorInfo& entry = header.entries[number];
    if (place.offset < end) {
      Fail(EBADMSG, "{}: begins at byte {}, but {} ends at byte {}", Subject(entry), place.offset,
           Subject(*before), end);
    }
    end = place.offset + place.length;
    before = &entry;
  }
}

}  // namespace

std::vector<DataRange> LocateTensors(const GgufHeader& header, uint64_t alignment,
                                     uint64_t file_size, Budget& budget) {
  const uint64_t data_offset = DataOffset(header, alignment);
  const Order order = ByOffset(header, budget);
  std::vector<DataRange> places;
  budget.Charge(header.entries.size() * sizeof(DataRange));
  places.reserve(header.entries.size());
  for (const TensorInfo& entry : header.entries) {
    try {
      places.push_back(LocateTensor(entry, data_offset, alignment, file_size, order));
    } catch (const Error& e) {
      throw WithContext(Subject(entry), e);
    }
    budget.Charge(MessageOf(places.back().error).size());
  }
  CheckOverlaps(header, order, places);
  return places;
}

std::optional<uint64_t> EndOf(const GgufHeader& header, uint64_t alignment) try {
  uint64_t end = DataOffset(header, alignment);
  for (const TensorInfo& entry : header.entries) {
    const StoredType* type = StoredTypeOf(entry.type);
    if (type == nullptr) return std::nullopt;
    const auto size = Padded(SizeOf(entry, *type), alignment);
    if (!size || __builtin_add_overflow(end, *size, &end)) return std::nullopt;
  }
  return end;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace ckptfs::gguf
