#include "parser/source/redis/key_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/codec/tensorizer_index.h"

namespace ckptfs::redis {
namespace {

constexpr std::string_view kNameOfHeader = "header";

// The entries of an index.
struct IndexEntries {
  ByteReader reader;
  bool has_tags = false;
  uint64_t count = 0;
};

// Returns the index in `header`, the beginning of a file. Throws Error(EBADMSG).
IndexEntries FindIndex(std::span<const std::byte> header) {
  ByteReader reader("header", header);
  if (reader.TakeText(tensorizer::kMagic.size(), "magic") != tensorizer::kMagic) {
    Fail(EBADMSG, "not a tensorizer file: magic not found");
  }
  reader.Read<uint32_t>("data version");
  const bool has_tags = (reader.Read<uint64_t>("feature flags") & tensorizer::kHasTags) != 0;
  constexpr size_t kUnread = 40;  // The other flags, the bytes of data, and what is unused.
  reader.Take(kUnread, "flags");
  const auto count = reader.Read<uint64_t>("number of tensors");
  const auto index_size = reader.Read<uint64_t>("length of the index");
  if (index_size != reader.remaining()) {
    Fail(EBADMSG, "has {} bytes behind byte {}, but its index has {}", reader.remaining(),
         reader.position(), index_size);
  }
  return {.reader = reader, .has_tags = has_tags, .count = count};
}

// Adds a part, unless it is empty or beyond the largest file size.
void Add(uint64_t offset, uint64_t end, std::string_view name, std::vector<KeyTable::Part>& parts) {
  constexpr uint64_t kLargestFile = std::numeric_limits<int64_t>::max();
  if (end > offset && end <= kLargestFile)
    parts.push_back({.offset = offset, .length = end - offset, .name = name});
}

}  // namespace

std::string HeaderKey(std::string_view prefix) {
  return fmt::format("{}:{}:0", prefix, kNameOfHeader);
}

KeyTable::KeyTable(std::string key, uint64_t length) : prefix_(std::move(key)), is_model_(false) {
  Add(0, length, "", parts_);
}

KeyTable::KeyTable(std::string prefix, std::vector<std::byte> header)
    : prefix_(std::move(prefix)), header_(std::move(header)) {
  Add(0, header_.size(), kNameOfHeader, parts_);
  IndexEntries index = FindIndex(header_);
  for (uint64_t i = 0; i < index.count; ++i) {
    const auto entry = tensorizer::ReadIndexEntry(index.reader, index.has_tags);
    Add(entry.header_offset, entry.data_offset, entry.name, parts_);
    // The sum wraps if it is too large; Add then ignores the part.
    Add(entry.data_offset, entry.data_offset + entry.data_size, entry.name, parts_);
  }
  std::ranges::stable_sort(parts_, {}, &Part::offset);
  uint64_t end = 0;
  std::erase_if(parts_, [&](const Part& part) {
    if (part.offset < end) return true;
    end = part.end();
    return false;
  });
}

size_t KeyTable::Find(uint64_t offset) const {
  const auto found = std::ranges::upper_bound(parts_, offset, {}, &Part::end);
  return static_cast<size_t>(found - parts_.begin());
}

std::string KeyTable::KeyOf(const Part& part) const {
  return is_model_ ? fmt::format("{}:{}:{}", prefix_, part.name, part.offset) : prefix_;
}

}  // namespace ckptfs::redis
