// How a zip archive is laid out:
//
//   [prefix] (local header, data, [descriptor])... central directory, end records
//
// An entry of the central directory says nearly all about a member: its name, its sizes, and where
// its local header is. Only the length of the local header, behind which the data begin, must be
// read there. What else local headers and descriptors say is not used: torch writes zeros into
// them, and zip64 blocks that are not by the book. Their names must be right, though: archives that
// show a scanner one name and a loader another one are an attack that has been seen
// (CVE-2025-1944).

#include "parser/codec/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "parser/byte_reader.h"
#include "parser/codec/member_name.h"
#include "parser/codec/zip_end.h"
#include "parser/error.h"

namespace ckptfs::zip {
namespace {

constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint64_t kLocalSize = 30;  // Of a local header without its name, in bytes.

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

// Looks for the zip64 block among the extra fields of an entry.
void ReadExtra(ByteReader extra, std::span<const WideField> fields) {
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

// An entry of the central directory.
struct Entry {
  uint64_t position = 0;  // In the file.
  Member member;          // All but where its data begin and its error.
  uint64_t header = 0;    // Where the local header is; counts from the beginning of the archive.
  std::string damage;     // See DamageOf.
};

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
  ReadExtra(ByteReader("extra fields", extra, extra_position), fields);
  if (disk != 0 && disk != std::numeric_limits<uint16_t>::max()) {
    Fail(ENOTSUP, "the archive is in several parts, which we do not read");
  }
  return entry;
}

// Checks that a member lies before the central directory, so that all of its offsets are sound.
void CheckRange(const Entry& entry, const End& end) {
  const uint64_t most = end.directory - end.archive;
  const uint64_t header_size = kLocalSize + entry.member.name.size();
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

// Why the size of a member cannot be; empty if it can.
std::string DamageOfSize(const Member& member) {
  const uint64_t most = MostDecoded(member.method, member.compressed_size);
  if (member.method == Method::kStored || member.size <= most) return {};
  return fmt::format("claims {} bytes, but {} compressed bytes cannot decode to more than {}",
                     member.size, member.compressed_size, most);
}

// What of a local header is to be read: all but its extra fields.
struct Header {
  uint64_t begin = 0;  // In the file.
  uint64_t end = 0;
  size_t member = 0;  // Index.
};

// How many of `headers`, which are sorted and not empty, to read at once: those that lie close
// together. Small members cost no system call each then, and large ones no bytes of their data.
size_t CountClose(std::span<const Header> headers, size_t window) {
  constexpr uint64_t kMostGap = 4096;
  uint64_t end = headers[0].end;
  size_t count = 1;
  for (; count < headers.size(); ++count) {
    const Header& next = headers[count];
    if (next.begin > end + kMostGap || next.end > headers[0].begin + window) break;
    end = std::max(end, next.end);
  }
  return count;
}

// Finds out where the data of `member` begin, which must end by `most`. Returns false if there is
// no local header in `bytes`.
bool Locate(Member& member, std::span<const std::byte> bytes, uint64_t position, uint64_t most) {
  ByteReader reader("local header", bytes, position);
  if (reader.Read<uint32_t>("signature") != kLocalSignature) return false;
  reader.Take(22, "fields");
  const auto name_length = reader.Read<uint16_t>("name length");
  const auto extra_length = reader.Read<uint16_t>("extra length");
  const auto name = reader.TakeText(reader.remaining(), "name");
  if (name_length != member.name.size()) {
    Fail(EBADMSG,
         "local header at byte {}: name has {} bytes, but {} has {} in the central directory",
         position, name_length, Quoted(member.name), member.name.size());
  }
  if (name != member.name) {
    Fail(EBADMSG, "local header at byte {}: name is {}, but {} in the central directory", position,
         Quoted(name), Quoted(member.name));
  }
  member.data_offset = reader.position() + extra_length;
  if (member.data_offset > most || member.compressed_size > most - member.data_offset) {
    Fail(EBADMSG,
         "local header at byte {}: {} bytes of member {} begin at byte {}, but the central "
         "directory is at byte {}",
         position, member.compressed_size, Quoted(member.name), member.data_offset, most);
  }
  return true;
}

// Reads the local headers, of which `headers` says where they are, in any order. Calls on_damage
// with the index of each member that has none.
template <typename OnDamage>
void LocateAll(const ByteSource& source, std::span<Header> headers, std::span<Member> members,
               uint64_t directory, OnDamage on_damage) {
  std::array<std::byte, 16384> window = {};  // Long enough for one header with the longest name.
  if (!std::ranges::is_sorted(headers, {}, &Header::begin)) {
    std::ranges::sort(headers, {}, &Header::begin);
  }
  const Member* previous = nullptr;
  uint64_t previous_end = 0;
  while (!headers.empty()) {
    const auto close = headers.first(CountClose(headers, window.size()));
    headers = headers.subspan(close.size());
    const uint64_t begin = close.front().begin;
    const uint64_t end = std::ranges::max(close, {}, &Header::end).end;
    const auto bytes = std::span(window).first(end - begin);
    source.ReadAt(begin, bytes);
    for (const Header& header : close) {
      Member& member = members[header.member];
      const auto its_bytes = bytes.subspan(header.begin - begin, header.end - header.begin);
      if (!Locate(member, its_bytes, header.begin, directory)) {
        on_damage(header);
        continue;
      }
      if (header.begin < previous_end) {
        Fail(EBADMSG, "local header at byte {}: member {} begins before {} ends at byte {}",
             header.begin, Quoted(member.name), Quoted(previous->name), previous_end);
      }
      previous = &member;
      previous_end = member.data_offset + member.compressed_size;
    }
  }
}

char Folded(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// FNV-1a.
uint64_t FoldedHash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(Folded(c));
    hash *= 0x100000001b3;
  }
  return hash;
}

bool FoldedLess(std::string_view a, std::string_view b) {
  return std::ranges::lexicographical_compare(a, b, {}, Folded, Folded);
}

bool IsSameFolded(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, Folded, Folded);
}

// The order of names, by their hashes first: those that differ in case only are neighbours.
bool IsLess(uint64_t hash_of_a, std::string_view a, uint64_t hash_of_b, std::string_view b) {
  if (hash_of_a != hash_of_b) return hash_of_a < hash_of_b;
  return IsSameFolded(a, b) ? a < b : FoldedLess(a, b);
}

}  // namespace

void Directory::SortNames() {
  names_.reserve(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    names_.push_back({.hash = FoldedHash(members_[i].name), .member = i});
  }
  const auto name_of = [&](const NameHash& name) { return members_[name.member].name; };
  std::ranges::sort(names_, [&](const NameHash& a, const NameHash& b) {
    return IsLess(a.hash, name_of(a), b.hash, name_of(b));
  });
  const auto twice = std::ranges::adjacent_find(names_, {}, name_of);
  if (twice != names_.end()) {
    Fail(EBADMSG, "central directory: member {} is there twice", Quoted(name_of(*twice)));
  }
}

const Member* Directory::Find(std::string_view name) const {
  const uint64_t hash = FoldedHash(name);
  const auto found = std::ranges::partition_point(names_, [&](const NameHash& other) {
    return IsLess(other.hash, members_[other.member].name, hash, name);
  });
  if (found == names_.end() || members_[found->member].name != name) return nullptr;
  return &members_[found->member];
}

void Directory::CheckPaths() const {
  for (const Member& member : members_) {
    try {
      CheckMemberName(member.name);
    } catch (const Error& e) {
      const auto before = static_cast<uint64_t>(member.name.data() - text_.data());
      const uint64_t position = position_ + before - kEntrySize;
      throw WithContext(fmt::format("central directory at byte {}", position), e);
    }
  }
  const auto name_of = [&](const NameHash& name) { return members_[name.member].name; };
  const auto twice = std::ranges::adjacent_find(names_, IsSameFolded, name_of);
  if (twice != names_.end()) {
    Fail(EBADMSG, "central directory: member {} is there twice, the other one as {}",
         Quoted(name_of(twice[0])), Quoted(name_of(twice[1])));
  }
}

Directory ReadDirectory(const ByteSource& source, Budget& budget) {
  const End end = ReadEnd(source);
  const uint64_t headers_size = end.entries * sizeof(Header);
  budget.Charge(end.size);
  budget.Charge(end.entries * (sizeof(Member) + sizeof(Directory::NameHash)) + headers_size);

  Directory directory;
  directory.position_ = end.directory;
  directory.text_.resize(end.size);
  const auto text = std::as_writable_bytes(std::span(directory.text_));
  source.ReadAt(end.directory, text);
  const auto add_error = [&](Member& member, std::string error) {
    budget.Charge(sizeof(std::string) + error.size());
    member.error = directory.errors_.emplace_back(std::move(error));
  };

  std::vector<Header> headers;
  headers.reserve(end.entries);
  directory.members_.reserve(end.entries);
  ByteReader reader("central directory", text, end.directory);
  for (uint64_t i = 0; i < end.entries; ++i) {
    Entry entry = ReadEntry(reader);
    if (entry.member.name.ends_with('/')) continue;
    CheckRange(entry, end);
    Member& member = directory.members_.emplace_back(entry.member);
    if (entry.damage.empty()) entry.damage = DamageOfSize(member);
    if (!entry.damage.empty()) {
      add_error(member, std::move(entry.damage));
      continue;
    }
    CheckStoredSize(member, entry.position);
    const uint64_t header = end.archive + entry.header;
    headers.push_back({.begin = header,
                       .end = header + kLocalSize + member.name.size(),
                       .member = directory.members_.size() - 1});
  }
  if (reader.remaining() > 0) {
    Fail(EBADMSG, "central directory at byte {}: {} bytes follow the last of its {} entries",
         reader.position(), reader.remaining(), end.entries);
  }

  LocateAll(source, headers, directory.members_, end.directory, [&](const Header& header) {
    add_error(directory.members_[header.member],
              fmt::format("has no local header at byte {}", header.begin));
  });
  directory.SortNames();
  budget.Refund(headers_size);
  return directory;
}

bool HasEndRecord(std::span<const std::byte> tail) { return FindEndRecord(tail).has_value(); }

}  // namespace ckptfs::zip
