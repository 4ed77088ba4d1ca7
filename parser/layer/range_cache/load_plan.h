// Predicts that a program loads the whole checkpoint, and what to fetch for it.
//
// The evidence is files that are read from their begin to their end, or backward, one after
// another, in any order. From the second one on, all files that have not been read yet are fetched
// in the order of the objects, beginning behind the file that was opened last: a little at first,
// and more with each file that is read. Reads in the middle of a file, or many files that are
// opened but not read to their ends, refute the prediction. But threads that share the work on a
// file begin in the middle of it, too: reads of one file count only if they are more than threads
// can be.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "parser/io/byte_source.h"
#include "parser/layer/range_cache/file_map.h"

namespace ckptfs {

// Uses no threads and does no I/O. Guarded by the lock of the cache.
class LoadPlan {
 public:
  // `files` must outlive this.
  explicit LoadPlan(FileMap& files) : files_(files) {}

  // How a read relates to those before it.
  enum class Kind : uint8_t {
    kBegin,     // Of a file.
    kEnd,       // The end of a file: it is read backward, or this is a scattered read.
    kNext,      // It continues a sequential stream.
    kScattered  // Neither.
  };

  // Records a read of an object. `is_fetched`: its first byte was fetched ahead, or is on its way.
  void RecordRead(uint32_t object, ByteRange read, Kind kind, bool is_fetched);

  // Whether a program that begins a file is expected to read all of it.
  bool ExpectsWholeFiles() const { return whole_files_ > 0; }

  // Whether a program reads the file that contains `offset` and is expected to read the rest of it.
  // Not if all was read before: then the page cache of the kernel has the other pages.
  bool ExpectsRestOf(uint32_t object, uint64_t offset);

  // Whether a program is expected to read all files.
  bool is_active() const { return is_active_; }

  // Returns how many bytes to hold that no reader has read yet: in proportion to those that were
  // read, up to `target`, or more after files were opened in an unexpected order, up to `most`.
  uint64_t Lead(uint64_t target, uint64_t most) const;

  struct Piece {
    uint32_t object = 0;
    ByteRange range;
  };

  // Returns where a range of an object ends that is fetched or on its way; `offset` if nothing is.
  using PresentUpTo = std::function<uint64_t(uint32_t object, uint64_t offset)>;

  // Returns the next bytes to fetch, at most `length` of them; nothing if there are none.
  std::optional<Piece> Next(uint64_t length, const PresentUpTo& present_up_to);

  // Records that `piece` is being fetched.
  void RecordFetched(const Piece& piece);

 private:
  struct State {
    uint64_t pass = 0;     // In which it was last read; 0 if it never was.
    uint64_t read = 0;     // Bytes in that pass; the same ones may count twice.
    uint64_t round = 0;    // In which it was last begun, at its begin or its end.
    uint64_t fetched = 0;  // Offset of the object up to which the plan has fetched the file.
    size_t next = 0;       // A file behind this one, or itself, before which all are fetched.
  };

  void Update();
  void Refute();
  bool IsBegun(size_t file) const;
  bool IsTolerated(size_t file);
  void Begin(size_t file, bool is_fetched);
  void Activate();
  void RecordGap();
  void FetchAllBut(const std::function<bool(size_t file)>& is_excluded);
  uint64_t ReadOf(size_t file) const;
  uint64_t LengthOfWhole(size_t file) const;
  bool IsWhole(size_t file) const;
  size_t NextUnfetched(size_t file);
  State& StateOf(size_t file);
  void MarkFetched(size_t file) { states_[file].next = file + 1; }

  FileMap& files_;
  std::vector<State> states_;  // Of the files; one more at the end.
  uint64_t version_ = 0;       // Of `files_`.
  FileMap::File last_;         // Of `files_`, if there is any.
  uint64_t round_ = 1;         // Number of predictions so far.
  uint64_t pass_ = 1;          // How often programs have begun to read files again.

  // Since the round began.
  bool is_active_ = false;
  // Reads in the middle of files since the last one was read to its end, and the file that is not
  // begun yet in which they were.
  size_t strays_ = 0;
  std::optional<size_t> stray_file_;
  unsigned whole_files_ = 0;
  uint64_t whole_bytes_ = 0;
  unsigned unfinished_ = 0;  // Files begun since the last one was read to its end.
  unsigned repeated_ = 0;    // Files that were begun twice.
  unsigned misses_ = 0;      // Reads of an active plan before their bytes were fetched.
  bool is_done_ = false;     // Nothing was left to fetch.
  size_t cursor_ = 0;        // The file behind the one that was begun last.
};

}  // namespace ckptfs
