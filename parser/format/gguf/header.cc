#include "parser/format/gguf/header.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory_resource>
#include <unordered_set>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/secret_hash.h"
#include "parser/checkpoint.h"

namespace ckptfs::gguf {
namespace {

constexpr uint32_t kNewest = 3;  // Version.
constexpr uint64_t kMostTensors = 2'000'000;
constexpr uint64_t kLongestName = 65'535;  // Bytes; ggml takes 63, its writers more.
constexpr uint32_t kMostDimensions = 8;    // ggml has 4.

// Reads the version and tells `reader` how all that follows is written.
void ReadForm(Reader& reader, Header& header) {
  reader.Read<uint32_t>("magic");
  auto version = reader.Read<uint32_t>("version");
  header.is_big_endian = (version & 0xFFFFU) == 0;
  if (header.is_big_endian) version = __builtin_bswap32(version);
  if (version < 1 || version > kNewest) {
    Fail(ENOTSUP, "has version {}, but 1 to {} are known", version, kNewest);
  }
  header.version = version;
  reader.SetForm({.is_big_endian = header.is_big_endian, .is_narrow = version == 1});
}

// The least that a pair has: a key of one byte and a value of one.
uint64_t LeastPair(const Reader& reader) { return reader.count_size() + sizeof(uint32_t) + 1 + 1; }

// The least that an entry has: one of a scalar without a name.
uint64_t LeastEntry(const Reader& reader) {
  return reader.count_size() + 2 * sizeof(uint32_t) + sizeof(uint64_t);
}

void CheckShape(const std::vector<uint64_t>& shape) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  uint64_t elements = 1;
  bool is_too_many = false;
  for (const uint64_t size : shape) {
    if (size > kMost) Fail(EOVERFLOW, "has a dimension of {}, but {} is the most", size, kMost);
    is_too_many = is_too_many || __builtin_mul_overflow(elements, size, &elements);
  }
  const bool is_empty = std::ranges::count(shape, uint64_t{0}) != 0;
  if (!is_empty && (is_too_many || elements >= kMost)) {
    Fail(EOVERFLOW, "has a shape of 2^63 elements or more");
  }
}

void ReadEntry(Reader& reader, Entry& entry) {
  const auto dimensions = reader.Read<uint32_t>("number of dimensions");
  if (dimensions > kMostDimensions) {
    Fail(EBADMSG, "has {} dimensions, but {} is the most", dimensions, kMostDimensions);
  }
  entry.shape.resize(dimensions);
  for (uint64_t& size : entry.shape) size = reader.ReadCount("dimension");
  std::ranges::reverse(entry.shape);
  CheckShape(entry.shape);
  entry.type = reader.Read<uint32_t>("type");
  entry.offset = reader.Read<uint64_t>("offset");
}

std::vector<Entry> ReadEntries(Reader& reader, uint64_t count, Budget& budget) {
  std::vector<Entry> entries;
  std::pmr::unordered_set<std::string, SecretHash, std::equal_to<>> names(&budget);
  for (uint64_t i = 0; i < count; ++i) {
    Entry entry;
    reader.ReadText("name of a tensor", kLongestName, entry.name);
    // The tensor that is made of it, and its file, have the name once more.
    budget.Charge(2 * sizeof(Entry) + 2 * sizeof(Member) + 4 * entry.name.size());
    if (!names.insert(entry.name).second) {
      Fail(EBADMSG, "tensor {}: occurs twice", Quoted(entry.name));
    }
    try {
      ReadEntry(reader, entry);
    } catch (const Error& e) {
      throw WithContext("tensor " + Quoted(entry.name), e);
    }
    budget.Charge(entry.shape.size() * 2 * sizeof(uint64_t));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

Header ReadHeader(const ByteSource& file, Budget& budget) {
  Reader reader(file, budget);
  Header header;
  ReadForm(reader, header);
  const uint64_t tensors = reader.ReadCount("number of tensors");
  const uint64_t pairs = reader.ReadCount("number of pairs");
  if (tensors > kMostTensors) {
    Fail(EFBIG, "has {} tensors, but {} is the most", tensors, kMostTensors);
  }
  reader.CheckCount(tensors, LeastEntry(reader), "tensors");
  reader.CheckCount(pairs, LeastPair(reader), "pairs of metadata");
  header.metadata = ReadMetadata(reader, pairs, budget);
  reader.CheckCount(tensors, LeastEntry(reader), "tensors");
  header.entries = ReadEntries(reader, tensors, budget);
  header.end = reader.position();
  return header;
}

}  // namespace ckptfs::gguf
