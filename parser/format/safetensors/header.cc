#include "parser/format/safetensors/header.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory_resource>
#include <optional>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/format/safetensors/dtypes.h"
#include "parser/format/safetensors/entries.h"

namespace ckptfs::safetensors {
namespace {

constexpr uint64_t kPrefixSize = 8;
constexpr uint64_t kMaxHeaderSize = 100'000'000;  // The limit of the reference.

uint64_t ReadLength(const ByteSource& file) {
  std::array<std::byte, kPrefixSize> prefix = {};
  if (file.size() < prefix.size()) {
    Fail(EBADMSG, "the file has {} bytes, but the length of the header alone needs {}", file.size(),
         prefix.size());
  }
  file.ReadAt(0, prefix);
  const auto length = ByteReader("header", prefix).Read<uint64_t>("length");
  if (length > kMaxHeaderSize) {
    Fail(EFBIG, "has {} bytes, but {} is the most", length, kMaxHeaderSize);
  }
  if (const uint64_t rest = file.size() - prefix.size(); length > rest) {
    Fail(EBADMSG, "needs {} bytes, but only {} are left: the file is truncated", length, rest);
  }
  return length;
}

// Returns the bytes that an entry needs; nothing if we do not know its dtype.
std::optional<uint64_t> SizeOf(const Entry& entry) {
  const StoredDtype* row = StoredDtypeNamed(entry.dtype);
  if (row == nullptr) return std::nullopt;
  // Beyond whole bytes the reference counts bits, in 64 bits.
  uint64_t bits = 1;
  for (const uint64_t size : entry.shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) {
      Fail(EOVERFLOW, "its shape has more than 2^64 elements");
    }
  }
  if (__builtin_mul_overflow(bits, row->bits, &bits)) {
    Fail(EOVERFLOW, "its shape needs more than 2^64 bits");
  }
  if (bits % 8 != 0) Fail(EBADMSG, "its shape needs {} bits, which are no whole bytes", bits);
  return bits / 8;
}

// `offset` is where the one before it ends.
void CheckEntry(const Entry& entry, uint64_t offset) try {
  if (entry.begin != offset) {
    Fail(EBADMSG, "begins at byte {} of the data, but what is before it ends at byte {}",
         entry.begin, offset);
  }
  if (entry.end < entry.begin) {
    Fail(EBADMSG, "ends at byte {} of the data, but begins at byte {}", entry.end, entry.begin);
  }
  const uint64_t size = entry.end - entry.begin;
  if (const auto want = SizeOf(entry); want && *want != size) {
    Fail(EBADMSG, "has {} bytes, but its dtype and shape need {}", size, *want);
  }
} catch (const Error& e) {
  throw WithContext("tensor " + Quoted(entry.name), e);
}

void CheckTiling(const Header& header, uint64_t file_size, Budget& budget) {
  std::pmr::vector<const Entry*> sorted(header.entries.size(), &budget);
  std::ranges::transform(header.entries, sorted.begin(), [](const Entry& e) { return &e; });
  std::ranges::sort(sorted, [](const Entry* a, const Entry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  uint64_t offset = 0;
  for (const Entry* entry : sorted) {
    CheckEntry(*entry, offset);
    offset = entry->end;
  }
  if (const uint64_t size = file_size - header.data_offset; offset != size) {
    Fail(EBADMSG, "the tensors need {} bytes of data, but the file has {}{}", offset, size,
         size < offset ? ": it is truncated" : "");
  }
}

}  // namespace

Header ReadHeader(const ByteSource& file, Budget& budget) {
  Header header;
  try {
    const uint64_t length = ReadLength(file);
    header.data_offset = kPrefixSize + length;
    budget.Grow(length);
    ReadEntries(file, kPrefixSize, length, budget, header);
  } catch (const Error& e) {
    throw WithContext("header", e);
  }
  CheckTiling(header, file.size(), budget);
  return header;
}

}  // namespace ckptfs::safetensors
