// Reads the containers into which PyTorch puts objects: archives, legacy streams, pickles.

#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/archive/record.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/storage.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"
#include "parser/layer/block_cache.h"
#include "parser/read_options.h"

namespace ckptfs::torch {

// What the pickles of one checkpoint share: there may be one, or a hundred thousand. Belongs to one
// thread.
struct Reading {
  // `file` is what is read, if it is one file; `what_for` and `budget_of_all` must outlive this.
  Reading(Budget& budget_of_all, Source file, const ReadOptions& what_for)
      : options(what_for), budget(budget_of_all), sidecar(std::move(file), what_for) {}

  // Adds the globals and the warnings of the sidecar to a whole checkpoint.
  void Report(Checkpoint& checkpoint) const {
    globals.Report(checkpoint);
    sidecar.Report(checkpoint);
  }

  const ReadOptions& options;
  Budget& budget;
  Globals globals{budget};
  Sidecar sidecar;

  // What gathered tensors keep between reads; theirs long after this is gone.
  std::shared_ptr<BlockCache> blocks = std::make_shared<BlockCache>();

  // How deep files are nested here: see ReadSaved.
  int depth = 0;

  // What is read becomes a part of something larger: its root has one member, whose key is empty
  // and which is the object itself, whatever it is.
  bool is_part = false;
};

// The elements of arrays that are outside of their pickle: see numpy.h.
using RawArrays = std::unordered_map<const pickle::Node*, Extent>;

// What the parts of the reader share while they read one pickle. Belongs to one thread.
struct Context {
  Reading& reading;
  Storages& storages;
  bool is_big_endian = false;  // The storages are.

  // The pickle: its bytes, and where they lie if they lie in a file as they are.
  std::span<const std::byte> pickle;
  Record pickle_record;

  // Sources of tensors that must be gathered, by what they show, so that tied ones share theirs.
  std::unordered_map<std::string, ByteSourcePtr> gathered = {};

  // Storages that are files inside of the pickle.
  NestedStorages nested = {};

  RawArrays raw_arrays = {};

  Budget& budget = reading.budget;
};

// There is a function for each container. All of them read the part `data` of a source, so that a
// container may be in the middle of a file, or nested in another one. The results have no format and no globals: the caller adds those (Reading::Report).

// Reads an archive, a legacy stream or a pickle by itself, detected by its first bytes. For files
// nested in others: throws Error(EFBIG) if they are nested too deep.
Checkpoint ReadSaved(const Extent& data, Reading& reading);

// The zip archives of torch.save, TorchScript, torch.package and torch.export.
Checkpoint ReadZip(const Extent& data, Reading& reading);

// What torch.save wrote before 1.6, and can still write: five pickles and then the storages.
Checkpoint ReadLegacy(const Extent& data, Reading& reading);

// Whether `head`, the first kLegacyHead bytes of a file or all of a shorter one, begins such a
// stream.
constexpr size_t kLegacyHead = 64;
bool IsLegacy(std::string_view head);

// A pickle without storages beside it: the one that `record`, which has no error, begins with. Sets
// `length`, unless it is null, to its bytes.
Checkpoint ReadPlainPickle(const Record& record, Reading& reading, uint64_t* length = nullptr);

// Runs `context.pickle`, which messages call `name`, and adds what it holds to the root and the
// warnings of `checkpoint`, and what it names to the globals of the reading. `resolve` may be
// empty. Throws Error, whose message begins with `name` if that is not empty.
void AddPickle(std::string_view name, Context& context, Checkpoint& checkpoint,
               const pickle::Resolve& resolve = {});

// A pickle, and where it lies.
struct Piece {
  Extent place;
  std::vector<std::byte> bytes;

  // Runs it, and adds what it names to the globals of the reading. The piece must outlive the
  // result. Throws Error, whose message begins with `what`.
  pickle::Graph Run(std::string_view what, Reading& reading) const;
};

// Reads the formats from before archives: pickles, numbers and bytes, one after another. `what`
// names the item in messages, which count bytes from the beginning of the data. All methods throw
// Error(EBADMSG) at the end of the data.
class Stream {
 public:
  // `budget` must outlive the stream.
  Stream(const Extent& data, Budget& budget) : begin_(data.offset), rest_(data), budget_(budget) {}

  // Reads a pickle, whose bytes are charged to the budget.
  Piece TakePickle(std::string_view what);

  // Reads an integer, least significant byte first.
  template <std::integral T>
  T Take(std::string_view what) {
    T number;
    Read(std::as_writable_bytes(std::span(&number, 1)), what);
    return number;
  }

  // Goes behind `length` bytes, which are not read, and returns their place.
  Extent Skip(uint64_t length, std::string_view what);

  // What follows all that was taken, ...
  const Extent& rest() const { return rest_; }

  // ... and where that begins.
  uint64_t position() const { return rest_.offset - begin_; }

 private:
  void Read(std::span<std::byte> buffer, std::string_view what);

  const uint64_t begin_;
  Extent rest_;
  Budget& budget_;
};

// Adds "protocol_version" and "little_endian" of `system`, the dict in which these formats describe
// the machine that wrote the file, to the annotations. Invalid items are skipped.
void RecordSystem(const pickle::Value& system, Checkpoint& checkpoint);

}  // namespace ckptfs::torch
