#include "parser/format/gguf/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory_resource>
#include <optional>
#include <utility>

#include "parser/base/error.h"
#include "parser/format/gguf/types.h"

namespace ckptfs::gguf {
namespace {

// Rounds up to a multiple of `alignment`, which is a power of two. Nothing if that does not fit.
std::optional<uint64_t> Padded(uint64_t offset, uint64_t alignment) {
  uint64_t padded = 0;
  if (__builtin_add_overflow(offset, alignment - 1, &padded)) return std::nullopt;
  return padded & ~(alignment - 1);
}

// Where offsets count from. A file without tensors has no padding. The end of a header and an
// alignment are far from 2^64.
uint64_t DataOffset(const Header& header, uint64_t alignment) {
  return header.entries.empty() ? header.end : *Padded(header.end, alignment);
}

// The size of a tensor of a known type, in bytes.
uint64_t SizeOf(const Entry& entry, const StoredType& type) {
  const uint64_t row = entry.shape.empty() ? 1 : entry.shape.back();
  if (row % type.elements != 0) {
    Fail(EBADMSG, "its rows have {} elements, which are no whole blocks of {} of type {}", row,
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

Order ByOffset(const Header& header, Budget& budget) {
  Order order(&budget);
  order.reserve(header.entries.size());
  for (const Entry& entry : header.entries) order.emplace_back(entry.offset, order.size());
  std::ranges::sort(order);
  return order;
}

// What a tensor of a type that is not known may have: all up to the next one.
uint64_t Reach(const Order& order, uint64_t offset, uint64_t data_size) {
  const auto next = std::ranges::upper_bound(order, offset, {}, &Order::value_type::first);
  const uint64_t end = next == order.end() ? data_size : std::min(next->first, data_size);
  return end > offset ? end - offset : 0;
}

Place PlaceOf(const Entry& entry, uint64_t data_offset, uint64_t alignment, uint64_t file_size,
              const Order& order) {
  if (entry.offset % alignment != 0) {
    Fail(EBADMSG, "is at byte {} of the data, which is no multiple of the alignment {}",
         entry.offset, alignment);
  }
  Place place;
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
    place.error = e.what();
    return place;
  }
  if (place.length != 0 && (entry.offset > data_size || place.length > data_size - entry.offset)) {
    Fail(EBADMSG, "its {} bytes at byte {} end after the {} of the file: it is truncated",
         place.length, place.offset, file_size);
  }
  return place;
}

std::string Subject(const Entry& entry) { return "tensor " + Quoted(entry.name); }

void CheckOverlaps(const Header& header, const Order& order, const std::vector<Place>& places) {
  uint64_t end = 0;
  const Entry* before = nullptr;
  for (const auto& [offset, number] : order) {
    const Place& place = places[number];
    if (place.length == 0) continue;
    const Entry& entry = header.entries[number];
    if (place.offset < end) {
      Fail(EBADMSG, "{}: begins at byte {}, but {} ends at byte {}", Subject(entry), place.offset,
           Subject(*before), end);
    }
    end = place.offset + place.length;
    before = &entry;
  }
}

}  // namespace

std::vector<Place> PlacesOf(const Header& header, uint64_t alignment, uint64_t file_size,
                            Budget& budget) {
  const uint64_t data_offset = DataOffset(header, alignment);
  const Order order = ByOffset(header, budget);
  std::vector<Place> places;
  budget.Charge(header.entries.size() * sizeof(Place));
  places.reserve(header.entries.size());
  for (const Entry& entry : header.entries) {
    try {
      places.push_back(PlaceOf(entry, data_offset, alignment, file_size, order));
    } catch (const Error& e) {
      throw WithContext(Subject(entry), e);
    }
    budget.Charge(places.back().error.size());
  }
  CheckOverlaps(header, order, places);
  return places;
}

std::optional<uint64_t> EndOf(const Header& header, uint64_t alignment) try {
  uint64_t end = DataOffset(header, alignment);
  for (const Entry& entry : header.entries) {
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
