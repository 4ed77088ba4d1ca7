// The policy of read-ahead. Uses no threads and does no I/O.
//
// Reads that follow each other form a *stream*. Since the kernel sends two and more requests at a
// time, "follow" is meant loosely. The *window* of a stream, which is read ahead, is as long as the
// bytes that it has read so far: scattered reads of 4 KiB cost little, and a sequential reader soon
// gets the whole bandwidth. At the beginning of a file of the mount, a new window begins.
//
// A window ends shortly after the end of the file that is being read. It includes a small part of
// the next file in proportion to what the stream has read: the reader of one tensor may not read
// the next one, but the reader of many consecutive ones will.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Guarded by the lock of the cache.
class ReadAhead {
 public:
  using Clock = std::chrono::steady_clock;
  using StreamId = uint64_t;  // 0 is none.

  // `most` is the length of all windows together, in bytes.
  explicit ReadAhead(uint64_t most) : most_(most) {}

  // Adds an object of `size` bytes; objects are numbered from 0.
  void AddObject(uint64_t size);

  // Adds a file of the mount, which is `range` of an object.
  void AdviseFile(uint32_t object, ByteRange range);

  // Whether nothing is known of the files of an object yet, since it is being opened.
  bool IsOpening(uint32_t object) const { return objects_[object].files.empty(); }

  // Records a read of an object. Returns the stream that it belongs to.
  StreamId RecordRead(uint32_t object, ByteRange read, Clock::time_point now);

  // Returns where the window of a stream ends: an offset behind the last read; 0 if the stream is
  // forgotten. While an object is being opened, a range for a reader may reach that far beyond the
  // read, and no other range is fetched.
  uint64_t EndOf(StreamId id, Clock::time_point now);

  // How long a range should be that is fetched for a stream, in bytes.
  uint64_t RangeLength(StreamId id, Clock::time_point now);

  // Records that a window needs nothing before `end`, which is fetched or being fetched.
  void RecordFetched(StreamId id, uint64_t end);

  // Records that a fetch for a stream has failed: read-ahead stops until the stream is read again.
  void RecordFailed(StreamId id);

  // Whether the stream was read recently.
  bool IsLive(StreamId id, Clock::time_point now) const;

  // An offset of an object at which a window lacks something, and where that window ends.
  struct Wish {
    StreamId stream = 0;
    uint32_t object = 0;
    ByteRange range;
  };

  // Whether a place is fetched or being fetched, and if so, up to where all is.
  using PresentUpTo = std::function<uint64_t(uint32_t object, uint64_t offset)>;

  // Returns the next range to fetch, taking streams in turns; nothing if all windows are full
  // enough.
  std::optional<Wish> Next(Clock::time_point now, const PresentUpTo& present_up_to);

 private:
  struct Object {
    uint64_t size = 0;
    std::vector<ByteRange> files;  // In order, without overlaps, once they are asked for.
    bool is_sorted = true;
  };

  struct Stream {
    StreamId id = 0;
    uint32_t object = 0;
    uint64_t position = 0;  // Behind the last byte that was read.
    uint64_t read = 0;      // Bytes.
    uint64_t least = 0;     // Of the window, in bytes.
    uint64_t fetched = 0;   // Offset up to which all is fetched, or is no concern any more.
    uint64_t file_end = 0;  // Of the file that is being read.
    unsigned files = 0;     // That were read to their ends.
    bool has_failed = false;
    Clock::time_point last;  // When it was read.
  };

  Stream* Find(StreamId id);
  const Stream* Find(StreamId id) const;
  Stream* Continued(uint32_t object, ByteRange read);
  Stream& Begin(uint32_t object, ByteRange read);
  void Sort(Object& object);
  uint64_t FileEnd(uint32_t object, uint64_t offset);
  bool IsFileBegin(uint32_t object, uint64_t offset);
  uint64_t WindowOf(const Stream& stream, Clock::time_point now) const;
  uint64_t BoundOf(const Stream& stream) const;
  uint64_t EndOf(const Stream& stream, Clock::time_point now) const;
  uint64_t WishEndOf(const Stream& stream, Clock::time_point now) const;

  const uint64_t most_;
  std::vector<Object> objects_;
  std::list<Stream> streams_;  // Read last first.
  StreamId last_id_ = 0;
};

}  // namespace ckptfs
