// The legacy stream of torch.save before 1.6, and of later releases on request: five pickles, then
// the storages, contiguous and without padding.
//
//   pickle 1   0x1950a86a20f9469cfc6c, which marks the format
//   pickle 2   1001, the version of the layout
//   pickle 3   a dict that describes the machine that wrote the file; ignored
//   pickle 4   the object, in which storages have persistent ids
//   pickle 5   a list of the keys of all storages
//   for each key in that order:
//     int64    number of elements
//     bytes    the elements, little-endian whatever the machine was
//
// The stream records neither the sizes of the pickles nor the offsets of the storages. The pickles
// are found by their opcodes, one after another. Then pickle 5 gives the order of the storages, and
// the ids in pickle 4 give their sizes. The numbers of elements are redundant; if one contradicts
// an id, the offsets of its storage and of all later ones are unknown.

#include "parser/format/torch/legacy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/format.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/storage.h"
#include "parser/io/prefetch.h"

namespace ckptfs {
namespace torch {

pickle::Graph Piece::Run(std::string_view what, Reading& reading) const try {
  pickle::Graph graph = pickle::Load(bytes, reading.budget);
  reading.globals.Add(graph);
  return graph;
} catch (const Error& e) {
  throw WithContext(what, e);
}

Piece Stream::TakePickle(std::string_view what) try {
  const uint64_t length = pickle::LengthOf(rest_, budget_);
  budget_.Charge(length);
  budget_.WorkOnBytes(length);
  Piece piece{.place = {rest_.source, rest_.offset, length},
              .bytes = std::vector<std::byte>(length)};
  rest_.source->ReadAt(rest_.offset, piece.bytes);
  Skip(length, what);
  return piece;
} catch (const Error& e) {
  throw WithContext(fmt::format("{} at byte {}", what, position()), e);
}

Extent Stream::Skip(uint64_t length, std::string_view what) {
  if (length > rest_.length) {
    Fail(EBADMSG, "{} at byte {} needs {} bytes, but only {} are left", what, position(), length,
         rest_.length);
  }
  Extent skipped = {rest_.source, rest_.offset, length};
  rest_.offset += length;
  rest_.length -= length;
  return skipped;
}

void Stream::Read(std::span<std::byte> buffer, std::string_view what) {
  const Extent place = Skip(buffer.size(), what);
  place.source->ReadAt(place.offset, buffer);
}

void RecordSystem(const Value& system, Checkpoint& checkpoint) {
  if (system.kind != Kind::kDict) return;
  const auto pairs = ItemsOf(system);
  const auto find = [&](std::string_view name, Kind kind) -> const Value* {
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const Value& key = pairs[i];
      const bool is_text = key.kind == Kind::kText || key.kind == Kind::kBytes;
      if (is_text && key.text() == name && pairs[i + 1].kind == kind) return &pairs[i + 1];
    }
    return nullptr;
  };
  if (const Value* version = find("protocol_version", Kind::kInt)) {
    checkpoint.annotations.emplace_back("protocol_version", std::to_string(version->integer));
  }
  if (const Value* is_little = find("little_endian", Kind::kBool)) {
    checkpoint.annotations.emplace_back("little_endian",
                                        is_little->integer != 0 ? "true" : "false");
  }
}

namespace {

constexpr int64_t kVersion = 1001;

bool IsMagic(const Value& value) {
  if (value.kind == Kind::kDecimal) return value.text() == "119547037146038801333356";
  return value.kind == Kind::kBigInt && value.text() == "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
}

// The locations of the storages of a stream.
class Payload {
 public:
  // `data` follows the pickles, at byte `begin` of the stream. `keys` is the root of pickle 5.
  // Throws Error(EBADMSG) if it is not a list of unique texts.
  Payload(const Extent& data, uint64_t begin, const Value& keys, Budget& budget);

  // Records the size of the storage of a persistent id. Must be called for all ids of pickle 4
  // before Find and Trailing.
  void AddId(const Value& persistent);

  // The bytes of a storage. Does not throw.
  Record Find(std::string_view key);

  // The number of bytes after the last storage; nothing if unknown.
  std::optional<uint64_t> Trailing();

 private:
  struct Named {
    uint64_t elements = 0;
    uint64_t size = 0;  // In bytes.
  };

  struct Place {
    std::string_view key;
    size_t index = 0;  // In the list of keys.
    Extent data;
  };

  void Locate();
  void AdviseCounts(const std::vector<Place*>& in_order, Prefetcher& counts) const;
  std::string Step(Place& place, uint64_t& position);

  const Extent data_;
  const uint64_t begin_;
  Budget& budget_;
  std::map<std::string, Named, std::less<>> named_;  // By the ids.
  std::vector<Place> places_;                        // Sorted by key.
  size_t known_ = 0;    // The number of items before the first corrupt one.
  std::string damage_;  // Its error.
  uint64_t end_ = 0;    // The end of the last storage in `data_`.
  bool is_resolved_ = false;
};

Payload::Payload(const Extent& data, uint64_t begin, const Value& keys, Budget& budget)
    : data_(data), begin_(begin), budget_(budget) {
  if (keys.kind != Kind::kList) Fail(EBADMSG, "pickle 5 is not a list of the keys of storages");
  const auto items = ItemsOf(keys);
  budget.Charge(items.size() * (sizeof(Place) + sizeof(void*)));
  places_.reserve(items.size());
  for (const Value& item : items) {
    if (!IsText(item)) Fail(EBADMSG, "pickle 5 has a key that is not text");
    if (item.text().size() > kMostStorageText) {  // Sorting compares them.
      Fail(EBADMSG, "pickle 5 has a key of {} bytes (maximum {})", item.text().size(),
           kMostStorageText);
    }
    places_.push_back({.key = item.text(), .index = places_.size(), .data = {}});
  }
  std::ranges::sort(places_, {}, &Place::key);
  const auto twice = std::ranges::adjacent_find(places_, {}, &Place::key);
  if (twice != places_.end()) Fail(EBADMSG, "pickle 5: duplicate key {}", Quoted(twice->key));
}

void Payload::AddId(const Value& persistent) {
  try {
    const StorageId id = ParseStorageId(persistent);
    if (named_.contains(id.key)) return;
    budget_.Charge(sizeof(Named) + 8 * sizeof(void*) + id.key.size());
    named_.emplace(id.key, Named{id.elements, id.size});
  } catch (const Error& e) {
    if (e.code() == EFBIG) throw;
    // Reading the storage reports the error. The cost of an exception:
    constexpr uint64_t kStepsOfException = 120;
    budget_.Work(kStepsOfException);
  }
}

// Finds the storage of `place` at `position` of the data, and advances `position` to the next one.
// Returns the error; empty if there is none.
std::string Payload::Step(Place& place, uint64_t& position) try {
  const auto found = named_.find(place.key);
  if (found == named_.end()) {
    return fmt::format("storage {} at byte {} has an unknown size: no object refers to it",
                       Quoted(place.key), begin_ + position);
  }
  const Named& named = found->second;
  int64_t elements = 0;
  if (sizeof elements > data_.length - position) {
    return fmt::format("storage {} at byte {}: unexpected end of file at byte {}",
                       Quoted(place.key), begin_ + position, begin_ + data_.length);
  }
  data_.source->ReadAt(data_.offset + position, std::as_writable_bytes(std::span(&elements, 1)));
  if (elements < 0 || static_cast<uint64_t>(elements) != named.elements) {
    return fmt::format("storage {} at byte {}: wrong number of elements (found {}, expected {})",
                       Quoted(place.key), begin_ + position, elements, named.elements);
  }
  position += sizeof elements;
  if (named.size > data_.length - position) {
    return fmt::format("storage {} of {} bytes at byte {}: unexpected end of file at byte {}",
                       Quoted(place.key), named.size, begin_ + position, begin_ + data_.length);
  }
  place.data = {data_.source, data_.offset + position, named.size};
  position += named.size;
  return {};
} catch (const Error& e) {
  if (IsTransient(e.code())) throw;
  return fmt::format("storage {} at byte {}: {}", Quoted(place.key), begin_ + position, e.what());
}

// Adds the offsets of the numbers of elements to `counts`, as the ids give them.
void Payload::AdviseCounts(const std::vector<Place*>& in_order, Prefetcher& counts) const {
  uint64_t position = 0;
  for (const Place* place : in_order) {
    const auto found = named_.find(place->key);
    if (found == named_.end() || sizeof(int64_t) > data_.length - position) return;
    counts.Add({.offset = data_.offset + position, .length = sizeof(int64_t)});
    position += sizeof(int64_t);
    if (found->second.size > data_.length - position) return;
    position += found->second.size;
  }
}

void Payload::Locate() {
  if (is_resolved_) return;
  is_resolved_ = true;
  std::vector<Place*> in_order(places_.size());
  for (Place& place : places_) in_order[place.index] = &place;
  Prefetcher counts(*data_.source);
  AdviseCounts(in_order, counts);
  for (; known_ < in_order.size(); ++known_) {
    counts.Reach(data_.offset + end_);
    damage_ = Step(*in_order[known_], end_);
    if (!damage_.empty()) return;
  }
}

Record Payload::Find(std::string_view key) {
  Locate();
  Record record{.data = {}, .member = fmt::format("storage {}", key), .is_in_file = true};
  const auto found = std::ranges::lower_bound(places_, key, {}, &Place::key);
  if (found == places_.end() || found->key != key) {
    record.error.emplace(EBADMSG, fmt::format("storage {} not found in the file", Quoted(key)));
  } else if (found->index < known_) {
    record.data = found->data;
  } else if (found->index == known_) {
    record.error.emplace(EBADMSG, damage_);
  } else {
    record.error.emplace(
        EBADMSG, fmt::format("the offset of storage {} is unknown: {}", Quoted(key), damage_));
  }
  return record;
}

std::optional<uint64_t> Payload::Trailing() {
  Locate();
  if (known_ < places_.size()) return {};
  return data_.length - end_;
}

void RecordTrailingBytes(const Extent& data, uint64_t trailing, Checkpoint& checkpoint) {
  if (trailing == 0) return;
  checkpoint.annotations.emplace_back("trailing_bytes", std::to_string(trailing));
  const uint64_t place = data.length - trailing;
  std::vector<std::byte> head(std::min<uint64_t>(trailing, kLegacyHead));
  data.source->ReadAt(data.offset + place, head);
  if (!IsLegacy({reinterpret_cast<const char*>(head.data()), head.size()})) return;
  checkpoint.warnings.push_back(
      fmt::format("another checkpoint follows at byte {}: ignored", place));
}

// The source code of a module's class is saved in an id, ('module', class, file, source), which
// resolves to the class.
Value ClassOfSavedModule(const Value& persistent) {
  const Value& id = ItemsOf(persistent)[0];
  if (id.kind != Kind::kTuple || ItemsOf(id).size() != 4) return {};
  const auto parts = ItemsOf(id);
  return IsText(parts[0]) && parts[0].text() == "module" ? parts[1] : Value();
}

}  // namespace

bool IsLegacy(std::string_view head) {
  // Protocols 0 and 1 begin with LONG, the others with PROTO.
  if (!head.starts_with('L') && !head.starts_with('\x80')) return false;
  Budget budget(uint64_t{1} << 20U);
  try {
    return IsMagic(pickle::Load(std::as_bytes(std::span(head)), budget).root());
  } catch (const Error&) {
    return false;
  }
}

namespace {

// Reads the first of the streams in `data`. Sets `trailing` to the number of bytes after it;
// nothing if unknown.
Checkpoint ReadFirst(const Extent& data, Reading& reading, std::optional<uint64_t>& trailing) {
  Budget& budget = reading.budget;
  Stream stream(data, budget);
  const Piece magic = stream.TakePickle("pickle 1");
  if (!IsMagic(magic.Run("pickle 1", reading).root())) {
    Fail(EBADMSG, "pickle 1: invalid magic number of torch.save");
  }
  const Piece version = stream.TakePickle("pickle 2");
  const pickle::Graph of_version = version.Run("pickle 2", reading);
  if (of_version.root().kind != Kind::kInt || of_version.root().integer != kVersion) {
    Fail(ENOTSUP, "pickle 2: unsupported version {} of the format (expected {})",
         Repr(of_version.root()), kVersion);
  }
  const Piece system = stream.TakePickle("pickle 3");
  const Piece objects = stream.TakePickle("pickle 4");
  const Piece keys = stream.TakePickle("pickle 5");
  const pickle::Graph of_keys = keys.Run("pickle 5", reading);
  Payload payload(stream.rest(), stream.position(), of_keys.root(), budget);

  Storages storages(budget, reading.sidecar,
                    [&](std::string_view key) { return payload.Find(key); });
  Context context{
      .reading = reading,
      .storages = storages,
      .pickle = objects.bytes,
      .pickle_record = {.data = objects.place, .member = "pickle 4", .is_in_file = true}};
  Checkpoint checkpoint;
  RecordSystem(system.Run("pickle 3", reading).root(), checkpoint);
  AddPickle("pickle 4", context, checkpoint, [&](const Value& persistent) {
    const Value module = ClassOfSavedModule(persistent);
    if (module.kind != Kind::kNone) return module;
    payload.AddId(persistent);
    return persistent;
  });
  trailing = payload.Trailing();
  return checkpoint;
}

bool IsLegacyAt(const Extent& data) {
  std::vector<std::byte> head(std::min<uint64_t>(data.length, kLegacyHead));
  if (!head.empty()) data.source->ReadAt(data.offset, head);
  return IsLegacy({reinterpret_cast<const char*>(head.data()), head.size()});
}

// Reads consecutive streams, which torch.save writes to one open file, as a list.
Checkpoint ReadStreams(Extent data, Reading& reading) {
  Checkpoint all;
  all.root.python_type = "list";
  reading.is_part = true;
  while (data.length > 0 && IsLegacyAt(data)) {
    const std::string number = std::to_string(all.root.members.size());
    std::optional<uint64_t> trailing;
    Checkpoint one;
    try {
      one = ReadFirst(data, reading, trailing);
    } catch (const Error& e) {
      if (IsFatal(e) || all.root.members.empty()) throw;
      all.warnings.push_back(
          fmt::format("stream {} at byte {}: {}: ignored", number, data.offset, e.what()));
      break;
    }
    reading.budget.Charge(2 * sizeof(Member) + sizeof(Group));
    if (all.root.members.empty()) all.annotations = std::move(one.annotations);
    std::ranges::move(one.warnings, std::back_inserter(all.warnings));
    all.root.members.push_back(
        {{number, Key::Kind::kNumber}, std::move(one.root.members.front().content)});
    if (!trailing) break;
    data.offset += data.length - *trailing;
    data.length = *trailing;
  }
  return all;
}

}  // namespace

Checkpoint ReadLegacy(const Extent& data, Reading& reading) {
  std::optional<uint64_t> trailing;
  Checkpoint checkpoint = ReadFirst(data, reading, trailing);
  if (trailing) RecordTrailingBytes(data, *trailing, checkpoint);
  return checkpoint;
}

}  // namespace torch

namespace {

bool MatchesLegacy(const Probe& probe) {
  const auto head = probe.head.first(std::min(probe.head.size(), torch::kLegacyHead));
  return torch::IsLegacy({reinterpret_cast<const char*>(head.data()), head.size()});
}

Checkpoint ParseLegacy(const Source& source, const ReadOptions& options) {
  Budget& budget = *options.budget;
  torch::Reading reading(budget, source, options);
  const Extent all = {source.file, 0, source.file->size()};
  std::optional<uint64_t> trailing;
  Checkpoint checkpoint = torch::ReadFirst(all, reading, trailing);
  if (trailing && torch::IsLegacyAt({all.source, all.length - *trailing, *trailing})) {
    checkpoint = torch::ReadStreams(all, reading);
  } else if (trailing) {
    torch::RecordTrailingBytes(all, *trailing, checkpoint);
  }
  reading.Report(checkpoint);
  return checkpoint;
}

}  // namespace

extern const Format torch_legacy_format{
    .name = "torch-legacy", .matches = MatchesLegacy, .parse = ParseLegacy};

}  // namespace ckptfs
