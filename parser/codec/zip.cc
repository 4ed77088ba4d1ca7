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
#include <utility>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/codec/member_name.h"
#include "parser/codec/zip_end.h"
#include "parser/codec/zip_entry.h"
#include "parser/codec/zip_local.h"
#include "parser/codec/zip_names.h"

namespace ckptfs::zip {

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
  const bool is_remote = source.is_remote();
  const uint64_t headers_size = end.entries * (2 * sizeof(Header) + 3 * sizeof(uint64_t));
  budget.Grow(end.size);
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

  LocateAll(source, headers, std::move(begins), directory.members_, end.directory,
            [&](const Header& header) {
              add_error(directory.members_[header.member],
                        fmt::format("has no local header at byte {}", header.begin));
            });
  directory.SortNames();
  budget.Refund(headers_size);
  return directory;
}

bool HasEndRecord(std::span<const std::byte> tail) { return FindEndRecord(tail).has_value(); }

}  // namespace ckptfs::zip
