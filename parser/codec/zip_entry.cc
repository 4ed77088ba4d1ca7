// An entry of the central directory says nearly all about a member: its name, its sizes, and where
// its local header is. What does not fit into its fields is in a zip64 block behind them.

#include "parser/codec/zip_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/codec/zip_end.h"
#include "parser/codec/zip_local.h"

namespace ckptfs::zip {
namespace {

constexpr uint32_t kEntrySignature = 0x02014b50;

// A flag, and what it says that follows the data: signature, CRC and two sizes. Nearly everybody
// writes the signature, and sizes of 64 bits where the entry has a zip64 block.
constexpr unsigned kHasDescriptor = 1U << 3U;
constexpr uint64_t kDescriptor = 16;      // Bytes.
constexpr uint64_t kWideDescriptor = 24;  // Bytes.

// A field of an entry that its zip64 block has if it is saturated: has all bits set.
struct WideField {
  std::string_view name;
  uint64_t& value;

  bool is_saturated() const { return value == std::numeric_limits<uint32_t>::max(); }
};

// Reads the values of saturated fields, in the order of `fields`. Some writers put in the values of
// all fields, or of the first ones, saturated or not.
void ReadZip64Block(ByteReader block, std::span<const WideField> fields) {
  constexpr size_t kWidth = sizeof(uint64_t);
  const auto saturated = std::ranges::count_if(fields, &WideField::is_saturated);
  const bool has_others = block.remaining() / kWidth != static_cast<size_t>(saturated);
  for (const WideField& field : fields) {
    if (field.is_saturated()) {
      field.value = block.Read<uint64_t>(field.name);
    } else if (has_others && block.remaining() >= kWidth) {
      const uint64_t position = block.position();
      const auto value = block.Read<uint64_t>(field.name);
      if (value != field.value) {
        Fail(EBADMSG, "zip64 block at byte {}: {} is {}, but {} in its entry", position, field.name,
             value, field.value);
      }
    }
  }
}

// Looks for the zip64 block among the extra fields of an entry. Returns whether there is one.
bool ReadExtra(ByteReader extra, std::span<const WideField> fields) {
  constexpr uint16_t kZip64 = 1;
  constexpr size_t kHead = 2 * sizeof(uint16_t);
  bool seen = false;
  while (extra.remaining() >= kHead) {  // Less is padding that some tools leave.
    const auto id = extra.Read<uint16_t>("id");
    const auto length = extra.Read<uint16_t>("length");
    const uint64_t position = extra.position();
    const auto block = extra.Take(length, "field");
    if (id != kZip64) continue;
    if (std::exchange(seen, true)) {
      Fail(EBADMSG, "extra fields at byte {}: a second zip64 block", position - kHead);
    }
    ReadZip64Block(ByteReader("zip64 block", block, position), fields);
  }
  return seen;
}

// Why the bytes of a member cannot be read; empty if they can.
std::string DamageOf(uint16_t flags, Method method) {
  constexpr unsigned kEncrypted = 1U << 0U | 1U << 6U | 1U << 13U;  // In three generations.
  constexpr unsigned kPatch = 1U << 5U;
  if ((flags & kEncrypted) != 0) return "is encrypted, as zip does it, which we do not read";
  if ((flags & kPatch) != 0) return "is a patch to another file, which we do not read";
  switch (method) {
    case Method::kStored:
    case Method::kDeflated:
    case Method::kBzip2:
    case Method::kLzma:
      return {};
  }
  return fmt::format(
      "is compressed by method {}, but we read 0 (stored), 8 (deflated), 12 (bzip2) and 14 (LZMA)",
      static_cast<unsigned>(method));
}

// Returns the most that `compressed` bytes can decode to: no more than their writer could do if all
// were for the best. Sizes beyond what 64 bits can count are the largest that they can.
uint64_t MostDecoded(Method method, uint64_t compressed) {
  struct Bound {
    uint64_t input;   // From each this many bytes ...
    uint64_t output;  // ... come this many, once more than they are there.
  };
  const auto bound = [&]() -> Bound {
    switch (method) {
      case Method::kDeflated:
        return {1, 1032};  // A match of 258 bytes in two bits.
      case Method::kBzip2:
        // A block of 900,000 runs and their lengths, each five bytes for 259, in what the head of a
        // block takes.
        return {20, uint64_t{900'000} / 5 * 259};
      case Method::kLzma:
        // A match of 273 bytes in 14 decisions, each of which takes 0.022 bits when it is as
        // probable as it can get.
        return {1, 273 * 8 * 1000 / (14 * 22)};
      case Method::kStored:
        break;
    }
    return {1, 1};
  }();
  uint64_t most = 0;
  const uint64_t times = compressed / bound.input + 1;
  if (__builtin_mul_overflow(times, bound.output, &most)) {
    return std::numeric_limits<uint64_t>::max();
  }
  return most;
}

}  // namespace

Entry ReadEntry(ByteReader& reader) {
  Entry entry{.position = reader.position()};
  Member& member = entry.member;
  const auto signature = reader.Read<uint32_t>("signature");
  if (signature != kEntrySignature) {
    Fail(EBADMSG, "central directory at byte {}: signature {:#010x}, but an entry has {:#010x}",
         entry.position, signature, kEntrySignature);
  }
  reader.Read<uint32_t>("versions");
  const auto flags = reader.Read<uint16_t>("flags");
  member.method = Method{reader.Read<uint16_t>("method")};
  entry.damage = DamageOf(flags, member.method);
  reader.Read<uint32_t>("time");
  member.crc = reader.Read<uint32_t>("CRC");
  member.compressed_size = reader.Read<uint32_t>("compressed size");
  member.size = reader.Read<uint32_t>("size");
  const auto name_length = reader.Read<uint16_t>("name length");
  const auto extra_length = reader.Read<uint16_t>("extra length");
  const auto comment_length = reader.Read<uint16_t>("comment length");
  const auto disk = reader.Read<uint16_t>("disk number");
  reader.Take(6, "attributes");
  entry.header = reader.Read<uint32_t>("offset");
  member.name = reader.TakeText(name_length, "name");
  const uint64_t extra_position = reader.position();
  const auto extra = reader.Take(extra_length, "extra fields");
  reader.Take(comment_length, "comment");

  const WideField fields[] = {
      {"size", member.size}, {"compressed size", member.compressed_size}, {"offset", entry.header}};
  const bool is_wide = ReadExtra(ByteReader("extra fields", extra, extra_position), fields);
  if ((flags & kHasDescriptor) != 0 && member.compressed_size > 0) {
    entry.descriptor = is_wide ? kWideDescriptor : kDescriptor;
  }
  if (disk != 0 && disk != std::numeric_limits<uint16_t>::max()) {
    Fail(ENOTSUP, "the archive is in several parts, which we do not read");
  }
  return entry;
}

void CheckRange(const Entry& entry, const End& end) {
  const uint64_t most = end.directory - end.archive;
  const uint64_t header_size = LocalSize(entry.member);
  if (entry.header > most || header_size > most - entry.header ||
      entry.member.compressed_size > most - entry.header - header_size) {
    Fail(EBADMSG,
         "central directory at byte {}: member {} of {} bytes at byte {} does not end before the "
         "central directory, which is at byte {}",
         entry.position, Quoted(entry.member.name), entry.member.compressed_size, entry.header,
         most);
  }
}

void CheckStoredSize(const Member& member, uint64_t position) {
  if (member.method == Method::kStored && member.size != member.compressed_size) {
    Fail(EBADMSG, "central directory at byte {}: member {} has {} bytes, but is stored in {}",
         position, Quoted(member.name), member.size, member.compressed_size);
  }
}

std::string DamageOfSize(const Member& member) {
  const uint64_t most = MostDecoded(member.method, member.compressed_size);
  if (member.method == Method::kStored || member.size <= most) return {};
  return fmt::format("claims {} bytes, but {} compressed bytes cannot decode to more than {}",
                     member.size, member.compressed_size, most);
}

}  // namespace ckptfs::zip
