// Tensors assembled from chunks, and the report of missing items.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/dcp/files.h"
#include "parser/format/dcp/metadata.h"

namespace ckptfs::dcp {

// Collects missing items and reports them by file: a missing file costs a thousand items for one
// reason. Belongs to one thread.
class LossReport {
 public:
  // Everything is charged to `budget`, which must outlive this.
  explicit LossReport(Budget& budget) : budget_(budget) {}

  // Records that `item` or a part of it, stored in the file `file`, is missing. All parts of an
  // item must be added one after another.
  void Add(std::string_view file, std::string_view item, std::string_view why);

  bool empty() const { return by_file_.empty(); }

  // Returns the message about the first file, by name. Precondition: not empty.
  std::string First() const { return Sentence(*by_file_.begin()); }

  // Adds the warnings and the annotation "lost", a list of items.
  void AddTo(Checkpoint& checkpoint) const;

 private:
  struct Loss {
    std::string first;  // The first item ...
    std::string why;    // ... and its error.
    size_t count = 0;   // Of items.
  };

  static std::string Sentence(const std::pair<const std::string, Loss>& loss);

  Budget& budget_;
  std::map<std::string, Loss> by_file_;
  std::string items_;  // In JSON, separated by commas.
  size_t count_ = 0;   // Of items_.
  std::string last_;   // The last item that was added.
};

// Reads a chunk of an item whose location is known. Throws Error; EFBIG ends the reading of all
// items.
using ReadChunk = std::function<Content(size_t chunk)>;

// Assembles the tensor `item`. If chunks are corrupt or missing, the rest of the tensor can be
// read; if all are, the tensor has an error. If its only chunk is not a tensor with data of its
// own, returns that chunk. `index` is the metadata file, `files` are the names of the files with
// the chunks.
//
// Throws Error only if `read` throws EFBIG or `budget` is exhausted.
Content AssembleTensor(const Item& item, std::string_view index, const StringTable& files,
                       const ReadChunk& read, LossReport& losses, Budget& budget);

// Returns the placeholder for a tensor that is missing because of `error`: a tensor that cannot be
// read, or a value if its size is implausible.
Content LostTensor(Tensor tensor, std::string_view error);

// Returns the placeholder for a value that cannot be read.
Content LostValue(std::string_view error);

// Returns whether `content` is one of these placeholders.
bool IsLost(const Content& content);

}  // namespace ckptfs::dcp
