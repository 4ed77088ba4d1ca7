// The layout of a zip archive:
//
//   [prefix] (local header, data, [descriptor])... central directory, end records
//
// An entry of the central directory describes a member: its name, its sizes, and the offset of its
// local header. The data begin after the local header, whose length only that header contains. The
// rest of local headers and descriptors is ignored: torch writes zeros there, and zip64 blocks that
// violate the specification. The names must match, though: archives that show one name to a scanner
// and another one to a loader are a known attack (CVE-2025-1944).

#include "parser/codec/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/text.h"
#include "parser/codec/zip_records.h"
#include "parser/io/folder.h"
#include "parser/io/prefetch.h"

namespace ckptfs::zip {
namespace {

char Folded(char c) { return ToLower(c); }

// Whether two names are equal except for case.
bool IsSameFolded(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, Folded, Folded);
}

// An entry of the central directory.
struct Entry {
  uint64_t position = 0;    // In the file.
  Member member;            // Without its data_offset and its error.
  uint64_t header = 0;      // The offset of the local header in the archive.
  uint64_t descriptor = 0;  // Bytes of the descriptor that probably follows the data.
  std::string damage;       // Why the bytes of the member cannot be read; empty if they can.
};

// Reads the next entry. Throws Error.
Entry ReadEntry(ByteReader& reader);

// Checks that a member lies before the central directory, so that all of its offsets are sound.
// Throws Error(EBADMSG).
void CheckRange(const Entry& entry, const End& end);

// Checks that both sizes of a stored member are equal. `position` is that of its entry. Throws
// Error(EBADMSG).
void CheckStoredSize(const Member& member, uint64_t position);

// Returns why the size of a member is impossible; else empty.
std::string DamageOfSize(const Member& member);

constexpr uint32_t kEntrySignature = 0x02014b50;

// The flag of a descriptor after the data: signature, CRC and two sizes. Nearly all programs write
// the signature, and sizes of 64 bits if the entry has a zip64 block.
constexpr unsigned kHasDescriptor = 1U << 3U;
constexpr uint64_t kDescriptor = 16;      // Bytes.
constexpr uint64_t kWideDescriptor = 24;  // Bytes.

// A field of an entry whose value is in the zip64 block if it is saturated: has all bits set.
struct WideField {
  std::string_view name;
  uint64_t& value;

  bool is_saturated() const { return value == std::numeric_limits<uint32_t>::max(); }
};

// Reads the values of saturated fields, in the order of `fields`. Some writers write the values of
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

// Reads the zip64 block among the extra fields of an entry. Returns whether there is one.
bool ReadExtra(ByteReader extra, std::span<const WideField> fields) {
  constexpr uint16_t kZip64 = 1;
  constexpr size_t kHead = 2 * sizeof(uint16_t);
  bool seen = false;
  while (extra.remaining() >= kHead) {  // Fewer bytes are padding of some tools.
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

// Returns why the bytes of a member cannot be read; else empty.
std::string DamageOf(uint16_t flags, Method method) {
  constexpr unsigned kEncrypted = 1U << 0U | 1U << 6U | 1U << 13U;  // In three generations.
  constexpr unsigned kPatch = 1U << 5U;
  if ((flags & kEncrypted) != 0) return "unsupported zip encryption";
  if ((flags & kPatch) != 0) return "unsupported patch to another file";
  switch (method) {
    case Method::kStored:
    case Method::kDeflated:
    case Method::kBzip2:
    case Method::kLzma:
      return {};
  }
  return fmt::format(
      "unsupported compression method {} (supported: 0 stored, 8 deflate, 12 bzip2, 14 LZMA)",
      static_cast<unsigned>(method));
}

// Returns an upper bound of the bytes that `compressed` bytes decode to, by the best ratio of the
// method. Saturates at 2^64 - 1.
uint64_t MostDecoded(Method method, uint64_t compressed) {
  struct Bound {
    uint64_t input;   // This many input bytes decode ...
    uint64_t output;  // ... to at most this many output bytes.
  };
  const auto bound = [&]() -> Bound {
    switch (method) {
      case Method::kDeflated:
        return {1, 1032};  // A match of 258 bytes in two bits.
      case Method::kBzip2:
        // A block of 900,000 bytes, of which five encode a run of 259, in the size of the head of a
        // block.
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
    Fail(ENOTSUP, "unsupported multi-part archive");
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

}  // namespace

void Directory::IndexNames() {
  names_.Reset(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    const std::string_view name = members_[i].name;
    const uint64_t hash = HashOf(name);
    if (FindHashed(hash, name) != HashIndex::kNone) {
      Fail(EBADMSG, "central directory: duplicate member {}", Quoted(name));
    }
    names_.Insert(hash, static_cast<uint32_t>(i));
  }
}

uint32_t Directory::FindHashed(uint64_t hash, std::string_view name) const {
  return names_.Find(hash, [&](uint32_t i) { return members_[i].name == name; });
}

const Member* Directory::Find(std::string_view name) const {
  const uint32_t found = FindHashed(HashOf(name), name);
  return found == HashIndex::kNone ? nullptr : &members_[found];
}

void Directory::CheckPaths() const {
  HashIndex folded;  // Never has two names that differ only in case.
  folded.Reset(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    const std::string_view name = members_[i].name;
    try {
      CheckMemberName(name);
    } catch (const Error& e) {
      const auto before = static_cast<uint64_t>(name.data() - text_.data());
      const uint64_t position = position_ + before - kEntrySize;
      throw WithContext(fmt::format("central directory at byte {}", position), e);
    }
    const uint64_t hash = HashOf(ToLower(name));
    const uint32_t twin =
        folded.Find(hash, [&](uint32_t j) { return IsSameFolded(members_[j].name, name); });
    if (twin != HashIndex::kNone) {
      Fail(EBADMSG, "central directory: duplicate member {} (also as {})",
           Quoted(members_[twin].name), Quoted(name));
    }
    folded.Insert(hash, static_cast<uint32_t>(i));
  }
}

namespace {

// Whether the archive is far away and one of torch.save. Its pickle, the first member, is read as
// soon as the directory is, and its tail was not fetched to detect the format.
bool IsDistantPickle(const ByteSource& source, const End& end) {
  constexpr uint64_t kMost = 4096;  // Bytes in which the first header is.
  if (!source.is_distant() || end.archive != 0 || end.directory < kMost) return false;
  std::array<std::byte, kMost> head = {};
  source.ReadAt(0, head);
  return BeginsWithPickle(head);
}

// Prefetches the directory; and before a pickle about as much as one is long that describes as many
// tensors: its length is in the directory only, and it has twice as many bytes for each tensor or
// more.
void PrefetchDirectory(const ByteSource& source, const End& end, bool is_before_pickle) {
  constexpr uint64_t kMost = uint64_t{16} << 20U;
  if (end.size == 0) return;
  std::vector<ByteRange> ranges = {{.offset = end.directory, .length = end.size}};
  const uint64_t pickle_end = std::min({2 * end.size, end.directory, kMost});
  if (is_before_pickle && pickle_end > kPrefetchedHead) {
    ranges.push_back({.offset = kPrefetchedHead, .length = pickle_end - kPrefetchedHead});
  }
  source.Prefetch(ranges);
}

}  // namespace

Directory ReadDirectory(const ByteSource& source, Budget& budget) {
  const Tail last(source);
  const End end = ReadEnd(last);
  const bool is_remote = source.is_remote();
  const uint64_t headers_size = end.entries * (2 * sizeof(LocalHeader) + 3 * sizeof(uint64_t));
  budget.Grow(end.size);
  budget.Charge(end.size);
  budget.Charge(end.entries * (sizeof(Member) + HashIndex::kMostBytes) + headers_size);

  Directory directory;
  directory.position_ = end.directory;
  directory.text_.resize(end.size);
  const auto text = std::as_writable_bytes(std::span(directory.text_));
  const bool is_distant_pickle = is_remote && IsDistantPickle(source, end);
  if (is_remote) PrefetchDirectory(source, end, is_distant_pickle);
  last.ReadAt(end.directory, text);
  const auto add_error = [&](Member& member, std::string error) {
    budget.Charge(sizeof(std::string) + error.size());
    member.error = directory.errors_.emplace_back(std::move(error));
  };

  std::vector<LocalHeader> headers;
  headers.reserve(end.entries);
  std::vector<uint64_t> begins;
  directory.members_.reserve(end.entries);
  ByteReader reader("central directory", text, end.directory);
  for (uint64_t i = 0; i < end.entries; ++i) {
    Entry entry = ReadEntry(reader);
    const bool is_folder = entry.member.name.ends_with('/');
    if (!is_folder) CheckRange(entry, end);
    const uint64_t header = end.archive + entry.header;
    if (is_remote) begins.push_back(header);
    if (is_folder) continue;
    Member& member = directory.members_.emplace_back(entry.member);
    if (entry.damage.empty()) entry.damage = DamageOfSize(member);
    if (!entry.damage.empty()) {
      add_error(member, std::move(entry.damage));
      continue;
    }
    CheckStoredSize(member, entry.position);
    headers.push_back({.begin = header,
                       .end = header + LocalSize(member),
                       .member = directory.members_.size() - 1,
                       .descriptor = entry.descriptor});
  }
  if (reader.remaining() > 0) {
    Fail(EBADMSG, "central directory at byte {}: {} bytes follow the last of its {} entries",
         reader.position(), reader.remaining(), end.entries);
  }

  const uint64_t tail = source.size() - std::min(source.size(), kPrefetchedTail);
  LocateAll(source, headers, std::move(begins), directory.members_, end.directory,
            is_distant_pickle ? end.directory : tail, [&](const LocalHeader& header) {
              add_error(directory.members_[header.member],
                        fmt::format("has no local header at byte {}", header.begin));
            });
  directory.IndexNames();
  budget.Refund(headers_size);
  return directory;
}

bool HasEndRecord(std::span<const std::byte> tail) { return FindEndRecord(tail).has_value(); }

}  // namespace ckptfs::zip
