// A zip archive ends like this:
//
//   central directory, [zip64 end record, zip64 locator], end record, [trailing bytes]
//
// Each record repeats data of another one, or data that follow from its own offset. If they differ,
// different readers see different archives, and a scanner may see other members than a loader.
// Therefore repeated data must agree.

#include "parser/codec/zip_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/io/prefetch.h"

namespace ckptfs::zip {
namespace {

constexpr std::string_view kEndSignature = "PK\5\6";
constexpr uint32_t kZip64EndSignature = 0x06064b50;
constexpr uint32_t kLocatorSignature = 0x07064b50;

// In bytes, without parts of variable length.
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kZip64EndSize = 56;
constexpr uint64_t kLocatorSize = 20;

constexpr uint64_t kMostTail = kEndSize + 0xFFFF;  // An end record with the longest comment.
constexpr uint64_t kLeastTail = 1024;              // Writers add no comment.

// The fields of both kinds of end records.
struct Values {
  uint64_t disk = 0;
  uint64_t directory_disk = 0;
  uint64_t entries_here = 0;  // On this disk.
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
};

// Reads the fields, in the widths of one kind.
template <typename Disk, typename Count, typename Size>
Values ReadValues(ByteReader& reader) {
  Values values;
  values.disk = reader.Read<Disk>("disk number");
  values.directory_disk = reader.Read<Disk>("disk number of the directory");
  values.entries_here = reader.Read<Count>("number of entries on this disk");
  values.entries = reader.Read<Count>("number of entries");
  values.size = reader.Read<Size>("size of the directory");
  values.offset = reader.Read<Size>("offset of the directory");
  return values;
}

struct Zip64End {
  uint64_t position = 0;  // In the file.
  uint64_t archive = 0;   // The begin of the archive according to the locator.
  Values values;
};

// Returns the zip64 end record at `position` if it ends at `locator`, as required.
std::optional<Zip64End> ReadZip64EndAt(const Tail& tail, uint64_t position, uint64_t locator) {
  constexpr uint64_t kUncounted = 12;  // Bytes of the record that its size excludes.
  std::array<std::byte, kZip64EndSize> bytes = {};
  tail.ReadAt(position, bytes);
  ByteReader reader("zip64 end record", bytes, position);
  const auto signature = reader.Read<uint32_t>("signature");
  const auto size = reader.Read<uint64_t>("size of the record");
  if (signature != kZip64EndSignature || size != locator - position - kUncounted) return {};
  reader.Read<uint32_t>("versions");
  return Zip64End{.position = position, .values = ReadValues<uint32_t, uint64_t, uint64_t>(reader)};
}

// Returns the zip64 end record that belongs to the end record at `end`, if the file has one.
std::optional<Zip64End> ReadZip64End(const Tail& tail, uint64_t end) {
  if (end < kLocatorSize) return {};
  const uint64_t locator = end - kLocatorSize;
  std::array<std::byte, kLocatorSize> bytes = {};
  tail.ReadAt(locator, bytes);
  ByteReader reader("zip64 locator", bytes, locator);
  if (reader.Read<uint32_t>("signature") != kLocatorSignature) return {};
  reader.Read<uint32_t>("disk number");
  const auto offset = reader.Read<uint64_t>("offset");
  const auto disks = reader.Read<uint32_t>("number of disks");
  if (disks > 1) Fail(ENOTSUP, "unsupported multi-part archive of {} parts", disks);

  std::optional<Zip64End> found;
  if (locator >= kZip64EndSize) {
    // Its position if it has the usual length, whatever precedes the archive; else its offset is
    // used.
    const uint64_t usual = locator - kZip64EndSize;
    found = ReadZip64EndAt(tail, usual, locator);
    if (!found && offset < usual) found = ReadZip64EndAt(tail, offset, locator);
  }
  if (!found || offset > found->position) {
    Fail(EBADMSG,
         "zip64 locator at byte {}: the zip64 end record should be at byte {} and end here, but is "
         "not there",
         locator, offset);
  }
  found->archive = found->position - offset;
  return found;
}

// Checks the end record at `end` against the zip64 end record, which has the values of saturated
// fields.
void CheckAgree(const Values& classic, const Values& zip64, uint64_t end) {
  constexpr uint64_t kMost16 = std::numeric_limits<uint16_t>::max();
  constexpr uint64_t kMost32 = std::numeric_limits<uint32_t>::max();
  const auto check = [&](std::string_view field, uint64_t Values::*value, uint64_t most) {
    if (classic.*value == most || classic.*value == zip64.*value) return;
    Fail(EBADMSG, "end record at byte {}: {} is {}, but {} in the zip64 end record", end, field,
         classic.*value, zip64.*value);
  };
  check("disk number", &Values::disk, kMost16);
  check("disk number of the directory", &Values::directory_disk, kMost16);
  check("number of entries on this disk", &Values::entries_here, kMost16);
  check("number of entries", &Values::entries, kMost16);
  check("size of the directory", &Values::size, kMost32);
  check("offset of the directory", &Values::offset, kMost32);
}

// Validates the end record at `end`; the directory ends at `directory_end`.
void CheckValues(const Values& values, uint64_t end, uint64_t directory_end) {
  if (values.disk != 0 || values.directory_disk != 0) {
    Fail(ENOTSUP, "unsupported multi-part archive");
  }
  if (values.entries_here != values.entries) {
    Fail(EBADMSG, "end record at byte {}: {} entries in all, but {} on the only disk", end,
         values.entries, values.entries_here);
  }
  if (values.size > directory_end || values.offset > directory_end - values.size) {
    Fail(EBADMSG,
         "end record at byte {}: central directory of {} bytes at byte {}, but it must end by byte "
         "{}",
         end, values.size, values.offset, directory_end);
  }
  if (values.entries > values.size / kEntrySize) {
    Fail(EBADMSG,
         "end record at byte {}: central directory of {} bytes has {} entries, but each needs at "
         "least {} bytes",
         end, values.size, values.entries, kEntrySize);
  }
}

// Whether the comment of the end record at `found` fills the rest of `tail`.
bool IsExact(std::span<const std::byte> tail, size_t found) {
  ByteReader reader("end record", tail.subspan(found));
  reader.Take(kEndSize - sizeof(uint16_t), "fields");
  return reader.Read<uint16_t>("comment length") == reader.remaining();
}

}  // namespace

std::optional<size_t> FindEndRecord(std::span<const std::byte> tail) {
  if (tail.size() < kEndSize) return {};
  const std::string_view text(reinterpret_cast<const char*>(tail.data()), tail.size());
  const size_t least = tail.size() - std::min<size_t>(tail.size(), kMostTail);
  std::optional<size_t> last;
  size_t found = text.rfind(kEndSignature, text.size() - kEndSize);
  while (found != std::string_view::npos && found >= least) {
    if (IsExact(tail, found)) return found;
    if (!last) last = found;
    if (found == 0) break;
    found = text.rfind(kEndSignature, found - 1);
  }
  return last;
}

Tail::Tail(const ByteSource& source) : source_(source) {
  const auto read = [&](uint64_t most) {
    bytes_.resize(std::min(source.size(), most));
    source.ReadAt(begin(), bytes_);
  };
  read(kLeastTail);
  const auto found = FindEndRecord(bytes_);
  if (!found || !IsExact(bytes_, *found)) read(kMostTail);
}

void Tail::ReadAt(uint64_t offset, std::span<std::byte> buffer) const {
  if (offset < begin()) return source_.ReadAt(offset, buffer);
  std::ranges::copy(bytes().subspan(offset - begin(), buffer.size()), buffer.begin());
}

End ReadEnd(const Tail& tail) {
  const auto found = FindEndRecord(tail.bytes());
  if (!found) {
    Fail(EBADMSG, "no end record in the last {} bytes: the file is probably truncated",
         tail.bytes().size());
  }
  const uint64_t end = tail.begin() + *found;
  ByteReader reader("end record", tail.bytes().subspan(*found), end);
  reader.Read<uint32_t>("signature");
  const auto classic = ReadValues<uint16_t, uint16_t, uint32_t>(reader);
  const auto comment_length = reader.Read<uint16_t>("comment length");
  const auto zip64 = ReadZip64End(tail, end);
  if (zip64) CheckAgree(classic, zip64->values, end);
  const Values& values = zip64 ? zip64->values : classic;
  const uint64_t directory_end = zip64 ? zip64->position : end;
  CheckValues(values, end, directory_end);

  // The end of the directory is known; the offset in the record may exclude a prefix of the
  // archive.
  const uint64_t archive = directory_end - values.size - values.offset;
  if (zip64 && zip64->archive != archive) {
    Fail(EBADMSG,
         "end record at byte {}: the archive begins at byte {} going by the central directory, but "
         "at byte {} going by the zip64 locator",
         end, archive, zip64->archive);
  }
  // The rest of a truncated archive whose member is an archive.
  if (archive > 0 && comment_length != reader.remaining()) {
    Fail(EBADMSG,
         "end record at byte {}: its archive begins at byte {} and {} bytes follow it: the file is "
         "probably truncated",
         end, archive, reader.remaining());
  }
  return {.directory = directory_end - values.size,
          .size = values.size,
          .entries = values.entries,
          .archive = archive};
}

namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint64_t kLocalSize = 30;  // Of a local header without its name, in bytes.

// Returns how many of `headers`, which are sorted and not empty, are close enough to be read at
// once: small members then share a system call, and no data of large ones is read.
size_t CountClose(std::span<const LocalHeader> headers) {
  constexpr uint64_t kMostGap = 8192;
  constexpr uint64_t kWindow = 16384;
  uint64_t end = headers[0].end;
  size_t count = 1;
  for (; count < headers.size(); ++count) {
    const LocalHeader& next = headers[count];
    if (next.begin > end + kMostGap || next.end > headers[0].begin + kWindow) break;
    end = std::max(end, next.end);
  }
  return count;
}

// The headers that are read at once.
ByteRange RangeOf(std::span<const LocalHeader> close) {
  const uint64_t begin = close.front().begin;
  return {.offset = begin, .length = std::ranges::max(close, {}, &LocalHeader::end).end - begin};
}

// Returns the offset of the data whose header is at `position`; `bytes` is that header without its
// extra fields. Nothing if it is not a local header.
std::optional<uint64_t> FindData(std::string_view wanted_name, std::span<const std::byte> bytes,
                                 uint64_t position) {
  ByteReader reader("local header", bytes, position);
  if (reader.Read<uint32_t>("signature") != kLocalSignature) return std::nullopt;
  reader.Take(22, "fields");
  const auto name_length = reader.Read<uint16_t>("name length");
  const auto extra_length = reader.Read<uint16_t>("extra length");
  const auto name = reader.TakeText(reader.remaining(), "name");
  if (name_length != wanted_name.size()) {
    Fail(EBADMSG,
         "local header at byte {}: name has {} bytes, but {} has {} in the central directory",
         position, name_length, Quoted(wanted_name), wanted_name.size());
  }
  if (name != wanted_name) {
    Fail(EBADMSG, "local header at byte {}: name is {}, but {} in the central directory", position,
         Quoted(name), Quoted(wanted_name));
  }
  return reader.position() + extra_length;
}

// Checks that the data of a member, from `begin` on, end before `most`, the position of `what`.
void CheckEnd(std::string_view name, uint64_t header, uint64_t begin, uint64_t size, uint64_t most,
              std::string_view what) {
  if (begin <= most && size <= most - begin) return;
  Fail(EBADMSG,
       "local header at byte {}: {} bytes of member {} begin at byte {}, but the {} is at byte {}",
       header, size, Quoted(name), begin, what, most);
}

// Reads `headers`, which are sorted. Throws and calls as LocateAll does.
void ReadHeaders(const ByteSource& source, std::span<const LocalHeader> headers,
                 std::span<Member> members, uint64_t directory,
                 const std::function<void(const LocalHeader& header)>& on_damage) {
  Prefetcher prefetcher(source);
  if (source.is_remote()) {
    for (auto rest = headers; !rest.empty(); rest = rest.subspan(CountClose(rest))) {
      prefetcher.Add(RangeOf(rest.first(CountClose(rest))));
    }
  }
  std::vector<std::byte> window;
  const Member* previous = nullptr;
  uint64_t previous_end = 0;
  while (!headers.empty()) {
    const auto close = headers.first(CountClose(headers));
    headers = headers.subspan(close.size());
    const ByteRange range = RangeOf(close);
    window.resize(std::max<size_t>(window.size(), range.length));
    const auto bytes = std::span(window).first(range.length);
    prefetcher.Reach(range.offset);
    source.ReadAt(range.offset, bytes);
    for (const LocalHeader& header : close) {
      Member& member = members[header.member];
      const auto its_bytes = bytes.subspan(header.begin - range.offset, header.end - header.begin);
      const auto begin = FindData(member.name, its_bytes, header.begin);
      if (!begin) {
        on_damage(header);
        continue;
      }
      member.data_offset = *begin;
      CheckEnd(member.name, header.begin, *begin, member.compressed_size, directory,
               "central directory");
      if (header.begin < previous_end) {
        Fail(EBADMSG, "local header at byte {}: member {} begins before {} ends at byte {}",
             header.begin, Quoted(member.name), Quoted(previous->name), previous_end);
      }
      previous = &member;
      previous_end = member.data_offset + member.compressed_size;
    }
  }
}

// Returns the provisional offset of the data of `member`: they end at `next`, where the next item
// begins. Nothing if that is impossible.
std::optional<uint64_t> Expect(const Member& member, const LocalHeader& header, uint64_t next) {
  constexpr uint64_t kMostExtra = 0xFFFF;
  if (next < header.end || member.compressed_size > next - header.end) return std::nullopt;
  uint64_t begin = next - member.compressed_size;
  if (begin - header.end >= header.descriptor) begin -= header.descriptor;
  if (begin - header.end > kMostExtra) return std::nullopt;
  return begin;
}

// Sets the provisional offset of each member. Returns false if one is impossible.
bool ExpectAll(std::span<const LocalHeader> headers, std::vector<uint64_t> begins,
               std::span<Member> members, uint64_t directory) {
  std::ranges::sort(begins);
  if (std::ranges::adjacent_find(headers, {}, &LocalHeader::begin) != headers.end()) return false;
  for (const LocalHeader& header : headers) {
    Member& member = members[header.member];
    const auto next = std::ranges::upper_bound(begins, header.begin);
    const bool is_last = next == begins.end();
    const auto begin = Expect(member, header, is_last ? directory : *next);
    if (!begin) return false;
    member.data_offset = *begin;
    member.deferred_offset = {.header = header.begin, .next = is_last ? directory : *next};
  }
  return true;
}

// Reads the headers that were fetched with the head, or from `tail` on with the directory. Returns
// false if a provisional offset is wrong.
bool ReadFree(const ByteSource& source, std::span<const LocalHeader> headers,
              std::span<Member> members, uint64_t directory, uint64_t tail,
              const std::function<void(const LocalHeader& header)>& on_damage) {
  std::vector<LocalHeader> free;
  std::vector<uint64_t> expected;
  for (const LocalHeader& header : headers) {
    if (header.end > kPrefetchedHead && header.begin < tail) continue;
    free.push_back(header);
    expected.push_back(members[header.member].data_offset);
  }
  ReadHeaders(source, free, members, directory, on_damage);
  bool is_as_expected = true;
  for (size_t i = 0; i < free.size(); ++i) {
    Member& member = members[free[i].member];
    member.deferred_offset.reset();
    is_as_expected &= member.data_offset == expected[i] || member.compressed_size == 0;
  }
  return is_as_expected;
}

}  // namespace

bool BeginsWithPickle(std::span<const std::byte> head) {
  if (head.size() < kLocalSize) return false;
  ByteReader reader("local header", head);
  if (reader.Read<uint32_t>("signature") != kLocalSignature) return false;
  reader.Take(22, "fields");
  const auto length = reader.Read<uint16_t>("name length");
  reader.Take(2, "extra length");
  return length <= reader.remaining() && reader.TakeText(length, "name").ends_with("/data.pkl");
}

uint64_t LocalSize(const Member& member) { return kLocalSize + member.name.size(); }

uint64_t LocateMember(const Member& member, std::span<const std::byte> header) {
  const DeferredOffset& place = *member.deferred_offset;
  const auto begin = FindData(member.name, header, place.header);
  if (!begin) {
    Fail(EBADMSG, "member {} has no local header at byte {}", Quoted(member.name), place.header);
  }
  CheckEnd(member.name, place.header, *begin, member.compressed_size, place.next, "next header");
  return *begin;
}

void LocateAll(const ByteSource& source, std::span<LocalHeader> headers,
               std::vector<uint64_t> begins, std::span<Member> members, uint64_t directory,
               uint64_t tail, const std::function<void(const LocalHeader& header)>& on_damage) {
  if (!std::ranges::is_sorted(headers, {}, &LocalHeader::begin)) {
    std::ranges::sort(headers, {}, &LocalHeader::begin);
  }
  if (source.is_remote() && ExpectAll(headers, std::move(begins), members, directory) &&
      ReadFree(source, headers, members, directory, tail, on_damage)) {
    return;
  }
  ReadHeaders(source, headers, members, directory, on_damage);
  for (Member& member : members) member.deferred_offset.reset();
}

}  // namespace ckptfs::zip
