#include "parser/codec/zip_local.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/io/prefetch.h"

namespace ckptfs::zip {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint64_t kLocalSize = 30;  // Of a local header without its name, in bytes.

// How many of `headers`, which are sorted and not empty, to read at once: those that lie close
// together. Small members cost no system call each then, and large ones no bytes of their data.
size_t CountClose(std::span<const LocalHeader> headers) {
  constexpr uint64_t kMostGap = 4096;
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

// Returns where data begin whose header is at `position`, of which `bytes` has all but the extra
// fields; nothing if there is no local header.
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

// Checks that the data of a member, which begin at `begin`, end by `most`, where `what` is.
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

// Returns where the data of `member` begin if they fill what is between its header and `next`, the
// place of what follows; nothing if they cannot.
std::optional<uint64_t> Expect(const Member& member, const LocalHeader& header, uint64_t next) {
  constexpr uint64_t kMostExtra = 0xFFFF;
  if (next < header.end || member.compressed_size > next - header.end) return std::nullopt;
  uint64_t begin = next - member.compressed_size;
  if (begin - header.end >= header.descriptor) begin -= header.descriptor;
  if (begin - header.end > kMostExtra) return std::nullopt;
  return begin;
}

// Sets what is expected of each member. Returns false if that cannot be.
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

// Reads the headers that were fetched with the directory. Returns false if the data of one begin
// elsewhere than expected.
bool ReadFree(const ByteSource& source, std::span<const LocalHeader> headers,
              std::span<Member> members, uint64_t directory,
              const std::function<void(const LocalHeader& header)>& on_damage) {
  const uint64_t tail = source.size() - std::min(source.size(), kPrefetchedTail);
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
               const std::function<void(const LocalHeader& header)>& on_damage) {
  if (!std::ranges::is_sorted(headers, {}, &LocalHeader::begin)) {
    std::ranges::sort(headers, {}, &LocalHeader::begin);
  }
  if (source.is_remote() && ExpectAll(headers, std::move(begins), members, directory) &&
      ReadFree(source, headers, members, directory, on_damage)) {
    return;
  }
  ReadHeaders(source, headers, members, directory, on_damage);
  for (Member& member : members) member.deferred_offset.reset();
}

}  // namespace ckptfs::zip
