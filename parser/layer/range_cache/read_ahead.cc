#include "parser/layer/range_cache/read_ahead.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

#include "parser/io/prefetch.h"
#include "parser/layer/range_cache/link.h"

namespace ckptfs {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

// The largest distances between sequential reads: the kernel reads up to 1 MiB ahead, in any order,
// and headers and padding lie between tensors. A small read skips little.
constexpr uint64_t kMostBehind = 2 * kMiB;
constexpr uint64_t kMostSkipped = 256 * kKiB;
constexpr uint64_t kLeastSkipped = 64 * kKiB;

// So many reads in a row, each of which ends where the one before begins, turn a stream.
constexpr unsigned kMostTurned = 3;

constexpr uint64_t kFirstWindow = kMiB;  // At the beginning of a file.
constexpr uint64_t kWindowPerByte = 4;   // Bytes of a window per byte that was read.

// A program that reads so much at once reads on: a page fault, or a header, is less.
constexpr uint64_t kBulk = 64 * kKiB;
constexpr uint64_t kFirstBulkWindow = 8 * kMiB;
constexpr uint64_t kBulkWindowPerByte = 64;

constexpr uint64_t kLeastBehindFile = 512 * kKiB;

// Before the files are known: what lies behind a header is often the next one.
constexpr uint64_t kLeastOpeningWindow = 128 * kKiB;
constexpr uint64_t kMostOpeningWindow = 512 * kKiB;

constexpr uint64_t kShortestRange = 128 * kKiB;

// A busy link carries fewer ranges than there are connections, so that each of them has another one
// soon. On an idle link a window is divided among all connections.
constexpr uint64_t kRangesOfBusyLink = 6;
constexpr uint64_t kRangesOfWindow = kUsualConnections;

constexpr size_t kMostStreams = 128;
constexpr std::chrono::seconds kIdle{5};

}  // namespace

void ReadAhead::AdviseFile(uint32_t object, ByteRange range) {
  if (range.length == 0) return;
  // Reads that open the object do not predict reads of its files.
  if (IsOpening(object)) {
    std::erase_if(streams_, [&](const Stream& stream) { return stream.object == object; });
  }
  files_.AddFile(object, range);
}

ReadAhead::Stream* ReadAhead::Find(StreamId id) {
  const auto found = std::ranges::find(streams_, id, &Stream::id);
  return found == streams_.end() ? nullptr : &*found;
}

const ReadAhead::Stream* ReadAhead::Find(StreamId id) const {
  const auto found = std::ranges::find(streams_, id, &Stream::id);
  return found == streams_.end() ? nullptr : &*found;
}

// A range of an object in the offsets of a stream, and the other way round.
ByteRange ReadAhead::Oriented(const Stream& stream, ByteRange range) const {
  if (!stream.is_backward) return range;
  return {files_.size_of(stream.object) - range.offset - range.length, range.length};
}

// The end of the file that contains an offset of a stream, in its direction.
uint64_t ReadAhead::FileEndAt(const Stream& stream, uint64_t offset) {
  if (!stream.is_backward) return files_.EndAt(stream.object, offset);
  const uint64_t size = files_.size_of(stream.object);
  return size - files_.BeginAt(stream.object, size - offset);
}

// The stream that was read nearest to here. It moves to the front.
ReadAhead::Stream* ReadAhead::Continued(uint32_t object, ByteRange read) {
  auto best = streams_.end();
  uint64_t least = kMostBehind + 1;
  const uint64_t skipped = std::clamp(2 * read.length, kLeastSkipped, kMostSkipped);
  for (auto stream = streams_.begin(); stream != streams_.end(); ++stream) {
    if (stream->object != object) continue;
    const uint64_t offset = Oriented(*stream, read).offset;
    const bool is_behind = offset < stream->position;
    uint64_t distance = is_behind ? stream->position - offset : offset - stream->position;
    if (is_behind && offset + read.length == stream->turn) distance = 0;
    const uint64_t most = std::clamp(stream->read, skipped, kMostBehind);
    if (distance > (is_behind ? most : skipped)) continue;
    if (distance < least) {
      least = distance;
      best = stream;
    }
  }
  if (best == streams_.end()) return nullptr;
  streams_.splice(streams_.begin(), streams_, best);
  return &streams_.front();
}

ReadAhead::Stream& ReadAhead::Begin(uint32_t object, ByteRange read, bool is_backward) {
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
  stream.is_backward = is_backward;
  stream.begin = stream.position = stream.fetched = stream.turn = Oriented(stream, read).offset;
  stream.file_end = FileEndAt(stream, stream.position);
  return stream;
}

// Whether a read, or one that was announced to begin with it, is so long that more will be read. In
// a small memory, a long window would evict what was fetched: announcements do not count.
bool ReadAhead::IsBulk(uint32_t object, ByteRange read) const {
  const bool is_announced = announced_.object == object && announced_.range.offset == read.offset &&
                            most_ >= 2 * kFirstBulkWindow;
  return std::max(read.length, is_announced ? announced_.range.length : 0) >= kBulk;
}

// Turns a stream whose reads run against its direction.
void ReadAhead::Turn(Stream& stream, ByteRange read) {
  const ByteRange place = Oriented(stream, read);
  stream.turned = place.offset + place.length == stream.turn ? stream.turned + 1 : 0;
  stream.turn = place.offset;
  if (stream.turned < kMostTurned || IsOpening(stream.object)) return;
  stream.is_backward = !stream.is_backward;
  stream.begin = stream.position = stream.fetched = stream.turn = Oriented(stream, read).offset;
  stream.file_end = FileEndAt(stream, stream.position);
  stream.turned = 0;
  stream.is_bulk = false;
  stream.read = kMostTurned * read.length;
  stream.least = 0;
}

ReadAhead::StreamId ReadAhead::RecordRead(uint32_t object, ByteRange read, bool is_fetched,
                                          Clock::time_point now) {
  Stream* stream = Continued(object, read);
  const bool goes_on = stream != nullptr;
  bool is_begin = files_.IsBegin(object, read.offset);
  auto kind = is_begin ? LoadPlan::Kind::kBegin : LoadPlan::Kind::kNext;
  if (goes_on) {
    Turn(*stream, read);
    is_begin = is_begin && !stream->is_backward;
    if (stream->is_backward) kind = LoadPlan::Kind::kNext;
  } else {
    // A program that loads each file backward begins at its end.
    const bool is_end = !is_begin && files_.IsEnd(object, read.offset + read.length);
    const bool is_backward = is_end && plan_.ExpectsWholeFiles() && !IsOpening(object);
    stream = &Begin(object, read, is_backward);
    if (is_end) kind = LoadPlan::Kind::kEnd;
    if (!is_end && !is_begin) kind = LoadPlan::Kind::kScattered;
    is_begin =
        is_begin || is_backward || (!IsOpening(object) && plan_.ExpectsRestOf(object, read.offset));
  }
  const ByteRange place = Oriented(*stream, read);
  const uint64_t end = place.offset + place.length;
  last_read_ = stream->last = now;
  stream->has_failed = false;
  stream->read += read.length;
  if (!IsOpening(object)) plan_.RecordRead(object, read, kind, is_fetched);
  if (is_begin) {
    const uint64_t file_end = FileEndAt(*stream, end - 1);
    if (!goes_on) stream->file_end = file_end;
    stream->is_bulk = stream->is_bulk || IsBulk(object, read);
    stream->least = std::max(stream->least, stream->is_bulk ? kFirstBulkWindow : kFirstWindow);
    if (plan_.ExpectsWholeFiles()) stream->least = std::max(stream->least, file_end - place.offset);
  }
  if (end > stream->position) {
    const uint64_t per_byte = stream->is_bulk ? kBulkWindowPerByte : kWindowPerByte;
    if (goes_on) stream->least = std::max(stream->least, per_byte * stream->read);
    stream->position = end;
    stream->fetched = std::max(stream->fetched, place.offset);
    if (end > stream->file_end) stream->file_end = FileEndAt(*stream, end - 1);
  }
  return stream->id;
}

// How many bytes ahead of a reader are fetched or in flight at most. Ranges arrive side by side, so
// that up to as many have arrived behind a missing one as are in flight; more if that one comes on
// a connection in slow start.
uint64_t ReadAhead::Target() const { return 4 * Enough(); }

// How many bytes all requests together are for: those in flight, or more, so that few connections
// seldom wait for a round trip between two ranges.
uint64_t ReadAhead::Enough() const {
  return std::max(in_flight_, requests_ <= Link::kFewConnections ? requests_ * longest_range_ : 0);
}

uint64_t ReadAhead::ShortestRange() const {
  return requests_ < kRangesOfBusyLink ? std::max(kShortestRange, in_flight_ / 4) : kShortestRange;
}

// The longest window of a stream: a share for each that is read in order and has not come to the
// end of its file.
uint64_t ReadAhead::ShareOf(Clock::time_point now) const {
  const auto count = std::ranges::count_if(streams_, [&](const Stream& other) {
    return other.least > kFirstWindow && other.position < other.file_end &&
           now - other.last < kIdle;
  });
  return most_ / static_cast<uint64_t>(std::max<std::ptrdiff_t>(count, 1));
}

uint64_t ReadAhead::WindowOf(const Stream& stream, uint64_t share) const {
  if (IsOpening(stream.object)) {
    return std::clamp(stream.read, kLeastOpeningWindow, kMostOpeningWindow);
  }
  if (stream.least == 0) return 0;
  return std::min({std::bit_floor(stream.least), share, Target()});
}

// How far the window of a stream that is alone may reach: beyond the file, which is fetched by the
// plan if there is one. Without a plan, half of what keeps the link busy, but no more than a
// quarter of what was read: a program that reads one file costs little more, and one that reads on
// waits less.
uint64_t ReadAhead::LimitOf(const Stream& stream) const {
  if (plan_.is_active()) return stream.file_end;
  const uint64_t most =
      std::max(std::min(in_flight_ / 2, most_ / 8) / kMiB * kMiB, kLeastBehindFile);
  const uint64_t more = std::clamp(std::bit_floor(stream.read / 4), kLeastBehindFile, most);
  const uint64_t left = files_.size_of(stream.object) - stream.file_end;
  return stream.file_end + std::min(more, left);
}

// How far a window may reach: at most to where another stream has begun, since threads that share a
// file read each byte once.
uint64_t ReadAhead::BoundOf(const Stream& stream) const {
  uint64_t bound = LimitOf(stream);
  for (const Stream& other : streams_) {
    const bool is_ahead = other.object == stream.object && other.begin >= stream.position;
    if (is_ahead && other.id != stream.id && other.is_backward == stream.is_backward &&
        other.least > 0) {
      bound = std::min(bound, other.begin);
    }
  }
  return bound;
}

uint64_t ReadAhead::EndOf(const Stream& stream, uint64_t share) const {
  const uint64_t size = files_.size_of(stream.object);
  if (stream.has_failed) return stream.position;
  const uint64_t end = stream.position + std::min(WindowOf(stream, share), size - stream.position);
  if (IsOpening(stream.object)) return end;
  return std::max(std::min(end, BoundOf(stream)), stream.position);
}

uint64_t ReadAhead::WishEndOf(const Stream& stream, uint64_t share) const {
  return IsOpening(stream.object) ? stream.position : EndOf(stream, share);
}

uint64_t ReadAhead::EndOf(StreamId id, Clock::time_point now) {
  const Stream* stream = Find(id);
  return stream == nullptr || stream->is_backward ? 0 : EndOf(*stream, ShareOf(now));
}

bool ReadAhead::IsScattered(StreamId id) const {
  const Stream* stream = Find(id);
  return stream != nullptr && !IsOpening(stream->object) && !stream->is_backward &&
         stream->least == 0;
}

uint64_t ReadAhead::RangeLength(StreamId id, Clock::time_point now) {
  const Stream* stream = Find(id);
  return RangeLength(stream == nullptr ? 0 : EndOf(*stream, ShareOf(now)) - stream->position);
}

uint64_t ReadAhead::RangeLength(uint64_t window) const {
  // Few requests that a server answers at the same time are the longer.
  const uint64_t length = room_ < in_flight_ / 2 && plan_.is_active()
                              ? Enough() / std::min(kRangesOfBusyLink, requests_)
                              : std::min(window, Enough()) / std::min(kRangesOfWindow, requests_);
  return std::clamp(length, ShortestRange(), longest_range_);
}

void ReadAhead::RecordFetched(StreamId id, ByteRange range) {
  Stream* const stream = Find(id);
  if (stream == nullptr) return;
  const ByteRange place = Oriented(*stream, range);
  stream->fetched = std::max(stream->fetched, place.offset + place.length);
}

void ReadAhead::RecordFailed(StreamId id) {
  if (Stream* stream = Find(id)) stream->has_failed = true;
}

bool ReadAhead::IsLive(StreamId id, Clock::time_point now) const {
  if (id == kPlanned) return plan_.is_active() && now - last_read_ < kIdle;
  const Stream* stream = Find(id);
  return stream != nullptr && now - stream->last < kIdle;
}

// Ranges are of several lengths, so that connections do not come to the ends of their ranges, and
// wait for a round trip, all at the same time.
uint64_t ReadAhead::Vary(uint64_t length) {
  constexpr std::array<uint64_t, 8> kEighths = {4, 16, 6, 12, 5, 14, 8, 10};
  return length * kEighths.at(wishes_++ % kEighths.size()) / 8;
}

// How long a range may be that is `length` bytes long on average. Many more bytes in flight than
// keep the link busy overflow its queue, and TCP is slow after losses. But if each range fitted
// exactly, connections would wait for room together, and then send all at once. Few connections
// need long ranges.
uint64_t ReadAhead::FitRoom(uint64_t varied, uint64_t length) const {
  return requests_ < kUsualConnections ? varied : std::min(varied, room_ + length);
}

std::optional<ReadAhead::Wish> ReadAhead::Next(Clock::time_point now,
                                               const PresentUpTo& present_up_to,
                                               const PresentDownTo& present_down_to) {
  // The stream whose window has been fetched least goes first. Streams so take turns without a
  // record of whose turn it is.
  Stream* neediest = nullptr;
  uint64_t least = 0;
  const uint64_t share = ShareOf(now);
  for (Stream& stream : streams_) {
    if (now - stream.last >= kIdle) continue;
    // Most streams are of files that have been read. Comparing them with all others takes long.
    if (stream.fetched >= std::max(LimitOf(stream), stream.position)) continue;
    const uint64_t end = WishEndOf(stream, share);
    if (stream.is_backward) {
      const uint64_t size = files_.size_of(stream.object);
      stream.fetched = size - present_down_to(stream.object, size - stream.fetched);
    } else {
      stream.fetched = present_up_to(stream.object, stream.fetched);
    }
    if (stream.fetched >= end) continue;
    // Small pieces are collected, unless the window cannot grow any more or runs dry.
    const uint64_t ahead = std::max(stream.fetched, stream.position) - stream.position;
    const uint64_t lacking = end - stream.fetched;
    const bool is_final = end == BoundOf(stream) || end == files_.size_of(stream.object);
    const uint64_t range = RangeLength(EndOf(stream, share) - stream.position);
    if (lacking < range && !is_final && ahead > WindowOf(stream, share) / 2) continue;
    if (neediest == nullptr || ahead < least) {
      neediest = &stream;
      least = ahead;
    }
  }
  if (neediest == nullptr) return {};
  const uint64_t end = WishEndOf(*neediest, share);
  const uint64_t window = EndOf(*neediest, share) - neediest->position;
  const uint64_t range = RangeLength(window);
  const uint64_t length = std::min(end - neediest->fetched, FitRoom(Vary(range), range));
  return Wish{.stream = neediest->id,
              .object = neediest->object,
              .range = Oriented(*neediest, {neediest->fetched, length}),
              .is_backward = neediest->is_backward};
}

std::optional<ReadAhead::Wish> ReadAhead::NextPlanned(uint64_t unread, uint64_t most,
                                                      Clock::time_point now,
                                                      const PresentUpTo& present_up_to) {
  if (!IsLive(kPlanned, now)) return {};
  const uint64_t lead = plan_.Lead(Target(), most);
  if (unread >= lead) return {};
  const uint64_t length =
      std::clamp(std::min(lead, Enough()) / std::min(kRangesOfBusyLink, requests_), ShortestRange(),
                 longest_range_);
  // Small pieces are collected, unless the lead runs dry.
  if (lead - unread < length && unread > lead / 2) return {};
  const auto piece =
      plan_.Next(std::min(FitRoom(Vary(length), length), lead - unread), present_up_to);
  if (!piece) return {};
  return Wish{.stream = kPlanned, .object = piece->object, .range = piece->range};
}

std::optional<ByteRange> ReadAhead::NextBehind(StreamId id, uint64_t end, uint64_t unread,
                                               uint64_t most, Clock::time_point now,
                                               const PresentUpTo& present_up_to) {
  const Stream* stream = Find(id);
  if (stream == nullptr || stream->is_backward || end + kMostBehind < stream->file_end ||
      requests_ >= kRangesOfBusyLink || !IsLive(kPlanned, now)) {
    return {};
  }
  const uint64_t lead = plan_.Lead(Target(), most);
  if (unread >= lead) return {};
  const auto piece = plan_.Next(std::min(longest_range_, lead - unread), present_up_to);
  const bool continues = piece && piece->object == stream->object &&
                         piece->range.offset >= stream->file_end &&
                         piece->range.offset <= stream->file_end + kLeastSkipped;
  return continues ? std::optional(piece->range) : std::nullopt;
}

}  // namespace ckptfs
