#include "parser/format/archive/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "parser/base/error.h"
#include "parser/codec/zip_records.h"
#include "parser/io/byte_source.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/decompressed.h"
#include "parser/layer/deferred_offset.h"
#include "parser/layer/verified.h"

namespace ckptfs {
namespace {

zip::Directory ReadDirectory(const Extent& data, Budget& budget) try {
  return zip::ReadDirectory(Slice(data), budget);
} catch (const Error& e) {
  throw WithContext("zip", e);
}

Coding CodingOf(zip::Method method) {
  switch (method) {
    case zip::Method::kBzip2:
      return Coding::kBzip2;
    case zip::Method::kLzma:
      return Coding::kLzma;
    case zip::Method::kStored:
    case zip::Method::kDeflated:
      break;
  }
  return Coding::kDeflate;
}

// Of this thread, in nanoseconds.
uint64_t ProcessorTime() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// A member whose local header has not been read, and its name.
struct DeferredMember {
  explicit DeferredMember(const zip::Member& deferred) : name(deferred.name), member(deferred) {
    member.name = name;
  }
  DeferredMember(const DeferredMember&) = delete;
  DeferredMember& operator=(const DeferredMember&) = delete;
  ~DeferredMember() = default;

  const std::string name;
  zip::Member member;
};

}  // namespace

Members::Members(Extent data, Budget& budget, const ReadOptions& options,
                 std::shared_ptr<BlockCache> blocks)
    : data_(std::move(data)),
      budget_(budget),
      verification_(options.verification),
      scratch_(options.scratch),
      blocks_(std::move(blocks)),
      directory_(ReadDirectory(data_, budget)) {}

Record Members::Open(const zip::Member& member, std::string_view name) const {
  Record opened{.data = {}, .member = std::string(name), .is_in_file = false};
  if (!member.error.empty()) {
    opened.error.emplace(EBADMSG, fmt::format("{}: {}", name, member.error));
    return opened;
  }
  opened.is_in_file = member.method == zip::Method::kStored;
  opened.data = {.source = SourceOf(member, name),
                 .offset = opened.is_in_file ? data_.offset + member.data_offset : 0,
                 .length = member.size};
  return opened;
}

ByteSourcePtr Members::Deferred(const zip::Member& member) const {
  if (!member.deferred_offset || member.compressed_size == 0) return data_.source;
  budget_.Charge(sizeof(DeferredMember) + member.name.size());
  const auto deferred = std::make_shared<const DeferredMember>(member);
  const Extent expected = {data_.source, data_.offset + member.data_offset, member.compressed_size};
  const ByteRange header = {.offset = data_.offset + member.deferred_offset->header,
                            .length = zip::LocalSize(member)};
  return MakeDeferredOffset(expected, header,
                            [deferred, begin = data_.offset](std::span<const std::byte> bytes) {
                              return begin + zip::LocateMember(deferred->member, bytes);
                            });
}

Compressed Members::CompressedOf(const zip::Member& member) const {
  return {.coding = CodingOf(member.method),
          .data = {Deferred(member), data_.offset + member.data_offset, member.compressed_size},
          .size = member.size};
}

ByteSourcePtr Members::SourceOf(const zip::Member& member, std::string_view name) const {
  const bool is_stored = member.method == zip::Method::kStored;
  const bool is_checked = verification_ != nullptr && member.crc != 0;
  if (is_stored && !is_checked && !member.deferred_offset) return data_.source;
  if (const auto found = sources_.find(&member); found != sources_.end()) return found->second;
  constexpr uint64_t kCost = 640;  // In bytes, of a source and its entry.
  budget_.Charge(kCost);
  const Extent data = {Deferred(member), data_.offset + member.data_offset, member.compressed_size};
  if (!is_stored && decoding_ == nullptr) {
    decoding_ = std::make_shared<Decoding>(blocks_, scratch_);
  }
  const ByteSourcePtr source =
      is_stored && !is_checked ? data.source
      : is_stored              ? MakeVerified(data, {.crc32 = member.crc}, {},
                                              fmt::format("member {}", Quoted(name)), verification_)
                               : MakeDecompressed(CompressedOf(member), member.crc, decoding_);
  return sources_.emplace(&member, source).first->second;
}

void Members::Prefetch(std::span<const zip::Member* const> members) const {
  if (!data_.source->is_remote()) return;
  std::vector<ByteRange> ranges;
  for (const zip::Member* member : members) {
    if (member == nullptr || !member->error.empty()) continue;
    const uint64_t begin =
        member->deferred_offset ? member->deferred_offset->header : member->data_offset;
    const uint64_t end = member->data_offset + member->compressed_size;
    ranges.push_back({.offset = data_.offset + begin, .length = end - begin});
  }
  data_.source->Prefetch(ranges);
}

void Members::PrefetchHeads(std::span<const zip::Member> members, uint64_t most) const {
  if (!data_.source->is_remote()) return;
  std::vector<ByteRange> ranges;
  for (const zip::Member& member : members) {
    if (!member.error.empty()) continue;
    const uint64_t begin =
        member.deferred_offset ? member.deferred_offset->header : member.data_offset;
    const uint64_t end = member.data_offset + std::min(member.compressed_size, most);
    ranges.push_back({.offset = data_.offset + begin, .length = end - begin});
  }
  data_.source->Prefetch(ranges);
}

std::vector<std::byte> Members::Read(const Record& record) const {
  record.Check();
  try {
    budget_.Grow(StoredSize(record.data));
    budget_.Charge(record.data.length);
    budget_.WorkOnBytes(record.data.length);
    std::vector<std::byte> bytes(record.data.length);
    if (!bytes.empty()) record.data.source->ReadAt(record.data.offset, bytes);
    return bytes;
  } catch (const Error& e) {
    throw WithContext(record.member, e);
  }
}

// Decoding the first byte of bzip2 data requires a whole block, up to a megabyte, so the length of
// a head does not bound the work.
std::vector<std::byte> Members::ReadHead(const Record& record, size_t most) const {
  record.Check();
  std::vector<std::byte> head(std::min<uint64_t>(most, record.data.length));
  const zip::Member* const member = directory_.Find(record.member);
  if (head.empty()) return head;
  if (member == nullptr || member->method == zip::Method::kStored) {
    record.data.source->ReadAt(record.data.offset, head);
    return head;
  }
  constexpr uint64_t kNanosecondsPerStep = 100;
  const uint64_t begin = ProcessorTime();
  Decompressor decompressor(CompressedOf(*member));
  const size_t decoded = decompressor.Decode(head);
  budget_.Work((ProcessorTime() - begin) / kNanosecondsPerStep);
  if (decoded == head.size()) return head;
  const std::string damage = decompressor.damage();
  throw Error(EIO, damage.empty() ? decompressor.Message(fmt::format("ends after {} of {} bytes",
                                                                     decoded, member->size))
                                  : damage);
}

}  // namespace ckptfs
