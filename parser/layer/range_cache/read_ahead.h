// What will be read next: the policy of reading ahead, which knows no threads and does no I/O.
//
// Reads that follow each other form a *stream*. Since the kernel sends its requests two and more at
// a time, "follow" is meant loosely. A stream is read ahead of by a *window*, which is as long as
// what it has read so far: who reads 4 KiB here and there costs little, and who reads on gets the
// whole link soon. Where a file of the mount begins, a window begins with it.
//
// A window ends with the file that is being read, and a little behind it: of the next file as much
// as was a small part of what the stream has read, since who reads one tensor may not want the next
// one, but who has read many of them in order will.

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

  // Says that there is an object of `size` bytes; they are numbered from 0.
  void AddObject(uint64_t size);

  // Says that `range` of an object is a file of the mount.
  void AdviseFile(uint32_t object, ByteRange range);

  // Whether nothing is known of the files of an object yet, since it is being opened.
  bool IsOpening(uint32_t object) const { return objects_[object].files.empty(); }

  // Annotations a read of an object. Returns the stream that it belongs to.
  StreamId Annotation(uint32_t object, ByteRange read, Clock::time_point now);

  // Where the window of a stream ends: an offset behind what was read last. 0 if it is forgotten.
  // While an object is being opened, that is how far a range for a reader may go beyond what is
  // read; nothing else is fetched then.
  uint64_t EndOf(StreamId id, Clock::time_point now);

  // How long a range should be that is fetched for a stream, in bytes.
  uint64_t RangeLength(StreamId id, Clock::time_point now);

  // Says that `end` is fetched, or will be, up to which a window needs nothing more.
  void RecordFetched(StreamId id, uint64_t end);

  // Says that fetching for a stream has failed: nothing is read ahead of it before it is read
  // again.
  void RecordFailed(StreamId id);

  // Whether somebody has read in a stream not long ago.
  bool IsLive(StreamId id, Clock::time_point now) const;

  // An offset of an object at which a window lacks something, and where that window ends.
  struct Wish {
    StreamId stream = 0;
    uint32_t object = 0;
    ByteRange range;
  };

  // Whether a place is fetched or being fetched, and if so, up to where all is.
  using PresentUpTo = std::function<uint64_t(uint32_t object, uint64_t offset)>;

  // The next range that should be fetched, taking streams in turns. None if all windows are full
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
