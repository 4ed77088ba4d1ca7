// The policy of read-ahead. Uses no threads and does no I/O.
//
// Reads that follow each other form a *stream*. Since the kernel sends two and more requests at a
// time, "follow" is meant loosely. A stream may run *backward*: memcpy copies a mapped file from
// its end to its begin if the addresses suggest it. The *window* of a stream, which is read ahead,
// is several times as long as the bytes that it has read so far: scattered reads of 4 KiB cost
// little. At the beginning of a file of the mount a new window begins, which a program that reads
// in large pieces opens within a few reads, as its connections do.
//
// A window ends shortly after the end of the file that is being read. What is fetched of other
// files is the concern of the *plan* (load_plan.h), which goes into effect after a few files were
// read whole. Windows come first.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>

#include "parser/io/byte_source.h"
#include "parser/io/prefetch.h"
#include "parser/layer/range_cache/file_map.h"
#include "parser/layer/range_cache/load_plan.h"

namespace ckptfs {

// Guarded by the lock of the cache.
class ReadAhead {
 public:
  using Clock = std::chrono::steady_clock;
  using StreamId = uint64_t;  // 0 is none.

  // `most` limits the length of all windows together, and what the plan holds, in bytes.
  explicit ReadAhead(uint64_t most) : most_(most) {}

  // Adds an object of `size` bytes; objects are numbered from 0.
  void AddObject(uint64_t size) { files_.AddObject(size); }

  // Sets how many bytes in flight keep the link busy (Link::in_flight), how many are in flight, how
  // many requests may run at the same time, and how many bytes one of them may be for.
  void SetInFlight(uint64_t bytes, uint64_t now, uint64_t requests, uint64_t longest_range) {
    in_flight_ = bytes;
    room_ = bytes - std::min(bytes, now);
    requests_ = requests;
    longest_range_ = longest_range;
  }

  // Adds a file of the mount, which is `range` of an object.
  void AdviseFile(uint32_t object, ByteRange range);

  // Records that a range will be read. A reader that begins with a small header before the bytes it
  // wants so is known to read much.
  void Announce(uint32_t object, ByteRange range) { announced_ = {object, range}; }

  // Whether nothing is known of the files of an object yet, since it is being opened.
  bool IsOpening(uint32_t object) const { return !files_.HasFiles(object); }

  // Records a read of an object. `is_fetched`: its first byte is fetched or being fetched. Returns
  // the stream that it belongs to.
  StreamId RecordRead(uint32_t object, ByteRange read, bool is_fetched, Clock::time_point now);

  // Returns where the window of a stream ends: an offset behind the last read; 0 if the stream is
  // forgotten or runs backward. While an object is being opened, a range for a reader may reach
  // that far beyond the read, and no other range is fetched.
  uint64_t EndOf(StreamId id, Clock::time_point now);

  // Whether a stream is a single read in the middle of a file, so far.
  bool IsScattered(StreamId id) const;

  // How long a range should be that is fetched for a stream, in bytes, on average.
  uint64_t RangeLength(StreamId id, Clock::time_point now);

  // Records that `range`, where a window begins or up to which it is full, is being fetched.
  void RecordFetched(StreamId id, ByteRange range);

  // Records that a fetch for a stream has failed: read-ahead stops until the stream is read again.
  void RecordFailed(StreamId id);

  // Whether the stream was read recently. kPlanned is live while the plan is in effect and any
  // stream was.
  bool IsLive(StreamId id, Clock::time_point now) const;
  static constexpr StreamId kPlanned = ~StreamId{0};

  // A range to fetch for a stream, or for the plan (kPlanned).
  struct Wish {
    StreamId stream = 0;
    uint32_t object = 0;
    ByteRange range;
    bool is_backward = false;  // The end of the range is read first.
  };

  using PresentUpTo = LoadPlan::PresentUpTo;

  // Returns where a range before `offset` begins that is fetched or on its way; `offset` if none
  // is.
  using PresentDownTo = std::function<uint64_t(uint32_t object, uint64_t offset)>;

  // Returns the next range to fetch for a window, taking streams in turns; nothing if all windows
  // are full enough.
  std::optional<Wish> Next(Clock::time_point now, const PresentUpTo& present_up_to,
                           const PresentDownTo& present_down_to);

  // Returns the next range to fetch for the plan, while `unread` bytes are held or being fetched
  // that no reader has read yet; nothing if these are enough. `most` limits them.
  std::optional<Wish> NextPlanned(uint64_t unread, uint64_t most, Clock::time_point now,
                                  const PresentUpTo& present_up_to);

  // Returns what to fetch for the plan behind a range for a reader that ends at `end`, in the same
  // request: few connections would wait for a round trip between two. `unread` and `most` are as in
  // NextPlanned. Returns nothing if the plan continues elsewhere, or if there are enough
  // connections.
  std::optional<ByteRange> NextBehind(StreamId id, uint64_t end, uint64_t unread, uint64_t most,
                                      Clock::time_point now, const PresentUpTo& present_up_to);

  // Records that a wish of the plan is being fetched.
  void RecordPlanned(uint32_t object, ByteRange range) { plan_.RecordFetched({object, range}); }

 private:
  // Offsets of a stream that runs backward are distances from the end of the object.
  struct Stream {
    StreamId id = 0;
    uint32_t object = 0;
    bool is_backward = false;
    uint64_t begin = 0;     // Of the first read.
    uint64_t position = 0;  // Behind the last byte that was read.
    uint64_t turn = 0;      // Offset of the last read, ...
    unsigned turned = 0;    // ... and how many in a row ended where the one before begins.
    uint64_t read = 0;      // Bytes.
    uint64_t least = 0;     // Of the window, in bytes.
    bool is_bulk = false;   // A long read began the file.
    uint64_t fetched = 0;   // Offset up to which all is fetched, or is no concern any more.
    uint64_t file_end = 0;  // Of the file that is being read.
    bool has_failed = false;
    Clock::time_point last;  // When it was read.
  };

  Stream* Find(StreamId id);
  const Stream* Find(StreamId id) const;
  Stream* Continued(uint32_t object, ByteRange read);
  Stream& Begin(uint32_t object, ByteRange read, bool is_backward);
  bool IsBulk(uint32_t object, ByteRange read) const;
  void Turn(Stream& stream, ByteRange read);
  ByteRange Oriented(const Stream& stream, ByteRange range) const;
  uint64_t FileEndAt(const Stream& stream, uint64_t offset);
  uint64_t Enough() const;
  uint64_t ShortestRange() const;
  uint64_t Target() const;
  uint64_t Vary(uint64_t length);
  uint64_t FitRoom(uint64_t varied, uint64_t length) const;
  uint64_t ShareOf(Clock::time_point now) const;
  uint64_t WindowOf(const Stream& stream, uint64_t share) const;
  uint64_t RangeLength(uint64_t window) const;
  uint64_t LimitOf(const Stream& stream) const;
  uint64_t BoundOf(const Stream& stream) const;
  uint64_t EndOf(const Stream& stream, uint64_t share) const;
  uint64_t WishEndOf(const Stream& stream, uint64_t share) const;

  const uint64_t most_;
  uint64_t in_flight_ = uint64_t{4} << 20U;
  uint64_t room_ = in_flight_;  // Bytes of it that are not in flight.
  uint64_t requests_ = kUsualConnections;
  uint64_t longest_range_ = uint64_t{8} << 20U;
  FileMap files_;
  LoadPlan plan_{files_};
  std::list<Stream> streams_;  // Read last first.
  LoadPlan::Piece announced_;  // Last.
  StreamId last_id_ = 0;
  uint64_t wishes_ = 0;  // So far.
  Clock::time_point last_read_;
};

}  // namespace ckptfs
