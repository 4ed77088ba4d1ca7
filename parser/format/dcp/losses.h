// What of a checkpoint is damaged or missing.

#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs::dcp {

// Collects what is lost, so that it can be told by file: where a file is missing, a thousand items
// are lost for one reason. Belongs to one thread.
class Losses {
 public:
  // `budget`, which what is kept is charged to, must outlive it.
  explicit Losses(Budget& budget) : budget_(budget) {}

  // Adds that `item`, or a part of it, is lost, which was in the file `file`. Items are added one
  // after the other.
  void Add(std::string_view file, std::string_view item, std::string_view why);

  bool empty() const { return by_file_.empty(); }

  // The sentence about the first file, by name. Precondition: not empty.
  std::string First() const { return Sentence(*by_file_.begin()); }

  // Adds to the warnings, and the note "lost", a list of items.
  void Tell(Checkpoint& checkpoint) const;

 private:
  struct Loss {
    std::string first;  // The first item ...
    std::string why;    // ... and what is wrong with it.
    size_t count = 0;   // Of all.
  };

  static std::string Sentence(const std::pair<const std::string, Loss>& loss);

  Budget& budget_;
  std::map<std::string, Loss> by_file_;
  std::string items_;  // In JSON, with commas between them.
  size_t count_ = 0;   // Of those.
  std::string last_;   // The last item that was added.
};

}  // namespace ckptfs::dcp
