#include "parser/layer/range_cache/read_ahead.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace ckptfs {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

// The largest distances between sequential reads: the kernel reads up to 1 MiB ahead, in any order,
// and headers and padding lie between tensors.
constexpr uint64_t kMostBehind = 2 * kMiB;
constexpr uint64_t kMostSkipped = 256 * kKiB;

constexpr uint64_t kFirstWindow = kMiB;  // At the beginning of a file.
constexpr uint64_t kLeastBehindFile = 512 * kKiB;
constexpr uint64_t kPartBehindFile = 64;  // Of what was read.

// After a few files in order, the next one will be read, too.
constexpr unsigned kFewFiles = 4;
constexpr uint64_t kPartBehindFiles = 4;
constexpr uint64_t kMostBehindFiles = 16 * kMiB;
// Before the files are known: what lies behind a header is often the next one.
constexpr uint64_t kLeastOpeningWindow = 128 * kKiB;
constexpr uint64_t kMostOpeningWindow = 512 * kKiB;

constexpr uint64_t kShortestRange = 512 * kKiB;
constexpr uint64_t kLongestRange = 8 * kMiB;
constexpr uint64_t kRangesOfWindow =
    12;  // More than are in flight, so that the link is never idle.

constexpr size_t kMostStreams = 128;
constexpr std::chrono::seconds kIdle{5};

}  // namespace

void ReadAhead::AddObject(uint64_t size) { objects_.push_back({.size = size}); }

void ReadAhead::AdviseFile(uint32_t object, ByteRange range) {
  if (range.length == 0) return;
  // Reads that open the object do not predict reads of its files.
  if (objects_[object].files.empty()) {
    std::erase_if(streams_, [&](const Stream& stream) { return stream.object == object; });
  }
  objects_[object].files.push_back(range);
  objects_[object].is_sorted = false;
}

// Files that overlap, as views of one storage do, become one.
void ReadAhead::Sort(Object& object) {
  if (object.is_sorted) return;
  object.is_sorted = true;
  std::vector<ByteRange>& files = object.files;
  std::ranges::sort(files, {}, &ByteRange::offset);
  size_t count = 1;
  for (const ByteRange& file : files) {
    ByteRange& last = files[count - 1];
    const uint64_t end = last.offset + last.length;
    if (file.offset < end) {
      last.length = std::max(end, file.offset + file.length) - last.offset;
    } else {
      files[count++] = file;
    }
  }
  files.resize(count);
}

// The end of the file that has `offset`, or of the gap before the next one.
uint64_t ReadAhead::FileEnd(uint32_t object, uint64_t offset) {
  Object& known = objects_[object];
  Sort(known);
  const auto next = std::ranges::upper_bound(known.files, offset, {}, &ByteRange::offset);
  if (next != known.files.begin()) {
    const ByteRange& file = *std::prev(next);
    if (offset - file.offset < file.length) return file.offset + file.length;
  }
  return next == known.files.end() ? known.size : next->offset;
}

// Whether a file begins at `offset`, or a little behind it, where its header is.
bool ReadAhead::IsFileBegin(uint32_t object, uint64_t offset) {
  constexpr uint64_t kMostHeader = 4 * kKiB;
  Object& known = objects_[object];
  Sort(known);
  const auto file = std::ranges::lower_bound(known.files, offset, {}, &ByteRange::offset);
  return file != known.files.end() && file->offset - offset <= kMostHeader;
}

ReadAhead::Stream* ReadAhead::Find(StreamId id) {
  const auto found = std::ranges::find(streams_, id, &Stream::id);
  return found == streams_.end() ? nullptr : &*found;
}

const ReadAhead::Stream* ReadAhead::Find(StreamId id) const {
  const auto found = std::ranges::find(streams_, id, &Stream::id);
  return found == streams_.end() ? nullptr : &*found;
}

// The stream that was read nearest to here. It moves to the front.
ReadAhead::Stream* ReadAhead::Continued(uint32_t object, ByteRange read) {
  auto best = streams_.end();
  uint64_t least = kMostBehind + 1;
  for (auto stream = streams_.begin(); stream != streams_.end(); ++stream) {
    if (stream->object != object) continue;
    const bool is_behind = read.offset < stream->position;
    const uint64_t distance =
        is_behind ? stream->position - read.offset : read.offset - stream->position;
    const uint64_t most = std::clamp(stream->read, kMostSkipped, kMostBehind);
    if (distance > (is_behind ? most : kMostSkipped)) continue;
    if (distance < least) {
      least = distance;
      best = stream;
    }
  }
  if (best == streams_.end()) return nullptr;
  streams_.splice(streams_.begin(), streams_, best);
  return &streams_.front();
}

ReadAhead::Stream& ReadAhead::Begin(uint32_t object, ByteRange read) {
  if (streams_.size() == kMostStreams) {
    // Streams of a single read are evicted first: random reads must not displace the others.
    const auto single = std::find_if(streams_.rbegin(), streams_.rend(),
                                     [](const Stream& stream) { return stream.least == 0; });
    streams_.erase(single == streams_.rend() ? std::prev(streams_.end())
                                             : std::prev(single.base()));
  }
  Stream& stream = streams_.emplace_front();
  stream.id = ++last_id_;
  stream.object = object;
  stream.position = stream.fetched = read.offset;
  stream.file_end = FileEnd(object, read.offset);
  return stream;
}

ReadAhead::StreamId ReadAhead::RecordRead(uint32_t object, ByteRange read, Clock::time_point now) {
  Stream* stream = Continued(object, read);
  const bool goes_on = stream != nullptr;
  if (!goes_on) stream = &Begin(object, read);
  const uint64_t end = read.offset + read.length;
  stream->last = now;
  stream->has_failed = false;
  stream->read += read.length;
  if (IsFileBegin(object, read.offset)) {
    stream->least = std::max(stream->least, kFirstWindow);
    if (!goes_on) stream->file_end = FileEnd(object, end - 1);
  }
  if (end > stream->position) {
    if (goes_on) stream->least = std::max(stream->least, stream->read);
    stream->position = end;
    stream->fetched = std::max(stream->fetched, read.offset);
    if (end > stream->file_end) {
      ++stream->files;
      stream->file_end = FileEnd(object, end - 1);
    }
  }
  return stream->id;
}

uint64_t ReadAhead::WindowOf(const Stream& stream, Clock::time_point now) const {
  if (IsOpening(stream.object)) {
    return std::clamp(stream.read, kLeastOpeningWindow, kMostOpeningWindow);
  }
  if (stream.least == 0) return 0;
  // A share for each that is read in order.
  const auto count = std::ranges::count_if(streams_, [&](const Stream& other) {
    return other.least > kFirstWindow && now - other.last < kIdle;
  });
  const uint64_t share = most_ / static_cast<uint64_t>(std::max<std::ptrdiff_t>(count, 1));
  return std::min(std::bit_floor(stream.least), share);
}

// How far a window may reach beyond the file.
uint64_t ReadAhead::BoundOf(const Stream& stream) const {
  uint64_t more = std::max(kLeastBehindFile, stream.read / kPartBehindFile);
  if (stream.files >= kFewFiles) {
    more = std::max(more, std::min(stream.read / kPartBehindFiles, kMostBehindFiles));
  }
  more = std::bit_floor(more);
  const uint64_t left = objects_[stream.object].size - stream.file_end;
  return stream.file_end + std::min(more, left);
}

uint64_t ReadAhead::EndOf(const Stream& stream, Clock::time_point now) const {
  const uint64_t size = objects_[stream.object].size;
  if (stream.has_failed) return stream.position;
  const uint64_t end = stream.position + std::min(WindowOf(stream, now), size - stream.position);
  if (IsOpening(stream.object)) return end;
  return std::max(std::min(end, BoundOf(stream)), stream.position);
}

uint64_t ReadAhead::WishEndOf(const Stream& stream, Clock::time_point now) const {
  return IsOpening(stream.object) ? stream.position : EndOf(stream, now);
}

uint64_t ReadAhead::EndOf(StreamId id, Clock::time_point now) {
  const Stream* stream = Find(id);
  return stream == nullptr ? 0 : EndOf(*stream, now);
}

uint64_t ReadAhead::RangeLength(StreamId id, Clock::time_point now) {
  const Stream* stream = Find(id);
  const uint64_t window = stream == nullptr ? 0 : WindowOf(*stream, now);
  return std::clamp(window / kRangesOfWindow, kShortestRange, kLongestRange);
}

void ReadAhead::RecordFetched(StreamId id, uint64_t end) {
  if (Stream* stream = Find(id)) stream->fetched = std::max(stream->fetched, end);
}

void ReadAhead::RecordFailed(StreamId id) {
  if (Stream* stream = Find(id)) stream->has_failed = true;
}

bool ReadAhead::IsLive(StreamId id, Clock::time_point now) const {
  const Stream* stream = Find(id);
  return stream != nullptr && now - stream->last < kIdle;
}

std::optional<ReadAhead::Wish> ReadAhead::Next(Clock::time_point now,
                                               const PresentUpTo& present_up_to) {
  // The stream whose window has been fetched least goes first. Streams so take turns without a
  // record of whose turn it is.
  Stream* neediest = nullptr;
  uint64_t least = 0;
  for (Stream& stream : streams_) {
    if (now - stream.last >= kIdle) continue;
    const uint64_t end = WishEndOf(stream, now);
    stream.fetched = present_up_to(stream.object, stream.fetched);
    if (stream.fetched >= end) continue;
    // Small pieces are collected, unless the window cannot grow any more or runs dry.
    const uint64_t ahead = std::max(stream.fetched, stream.position) - stream.position;
    const uint64_t lacking = end - stream.fetched;
    const bool is_final = end == BoundOf(stream) || end == objects_[stream.object].size;
    if (lacking < RangeLength(stream.id, now) && !is_final && ahead > WindowOf(stream, now) / 2) {
      continue;
    }
    if (neediest == nullptr || ahead < least) {
      neediest = &stream;
      least = ahead;
    }
  }
  if (neediest == nullptr) return {};
  const uint64_t end = WishEndOf(*neediest, now);
  const uint64_t length = std::min(end - neediest->fetched, RangeLength(neediest->id, now));
  return Wish{neediest->id, neediest->object, {neediest->fetched, length}};
}

}  // namespace ckptfs
