// Reads the containers into which PyTorch puts objects (archives, legacy streams, pickles), and
// converts the objects to groups, tensors and values of a checkpoint.

#pragma once

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

// The state that all pickles of one checkpoint share; there may be a hundred thousand. Belongs to
// one thread.
struct Reading {
  // `file` is the checkpoint, if it is one file; `what_for` and `budget_of_all` must outlive this.
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

  // The blocks that gathered tensors cache between reads. Tensors share the cache, so it outlives
  // this.
  std::shared_ptr<BlockCache> blocks = std::make_shared<BlockCache>();

  // The depth of nested files: see ReadSaved.
  int depth = 0;

  // Whether the result becomes a part of a larger object: its root then has one member, which has
  // an empty key and is the object itself.
  bool is_part = false;
};

// The elements of arrays that are outside of their pickle: see numpy.h.
using RawArrays = std::unordered_map<const pickle::Node*, Extent>;

// The state of reading one pickle. Belongs to one thread.
struct Context {
  Reading& reading;
  Storages& storages;
  bool is_big_endian = false;  // The storages are.

  // The bytes of the pickle, and their location if a file stores them uncompressed.
  std::span<const std::byte> pickle;
  Record pickle_record;

  // Sources of gathered tensors by the identity of their views, so that tied ones share them.
  std::unordered_map<std::string, ByteSourcePtr> gathered = {};

  // Storages that are files inside of the pickle.
  NestedStorages nested = {};

  RawArrays raw_arrays = {};

  Budget& budget = reading.budget;
};

// Containers are read from a part `data` of a source, because they may be in the middle of a file
// or nested in another container. The results have no format and no globals, which the caller adds
// (Reading::Report).

// Reads an archive, a legacy stream or a single pickle, detected by its first bytes. For files
// nested in others: throws Error(EFBIG) if they are nested too deep.
Checkpoint ReadSaved(const Extent& data, Reading& reading);

// Reads the pickle without storages beside it at the begin of `record`, which has no error. Sets
// `length`, unless it is null, to the size of the pickle in bytes.
Checkpoint ReadPlainPickle(const Record& record, Reading& reading, uint64_t* length = nullptr);

// Reads `record`, which is one pickle and nothing else, has no error, and no arrays of joblib.
Checkpoint ReadWholePickle(const Record& record, Reading& reading);

// Runs `context.pickle`, which messages call `name`, and adds its objects to the root and the
// warnings of `checkpoint`, and its globals to those of the reading. `resolve` may be
// empty. Throws Error, whose message begins with `name` if that is not empty.
void AddPickle(std::string_view name, Context& context, Checkpoint& checkpoint,
               const pickle::Resolve& resolve = {});

// Fills in the root and the warnings of `checkpoint` from `root`. Containers and objects that
// contain a tensor become groups, all others values. An object that contains itself is shown as
// "..." there. A corrupt tensor gets an error and a warning.
//
// Throws Error: EBADMSG if there are tensors and none of them can be read, EFBIG if objects are
// nested more than kMaxDepth levels deep or exceed the budget.
void AddObjects(const pickle::Value& root, Context& context, Checkpoint& checkpoint);

}  // namespace ckptfs::torch
