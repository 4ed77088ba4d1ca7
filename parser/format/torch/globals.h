// What a pickle asks to be imported: for people who want to know what loading it would have run.

#pragma once

#include <set>
#include <string>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// The classes and functions that the pickles of one checkpoint name. Belongs to one thread.
class Globals {
 public:
  // `budget`, which what is kept is charged to, must outlive this.
  explicit Globals(Budget& budget) : budget_(budget) {}

  // Adds those of one pickle. Throws Error(EFBIG).
  void Add(const pickle::Graph& graph);

  // Adds to the annotations: "globals", a list of all, and "globals_refused_by_weights_only", a list of
  // those for which torch.load(weights_only=True) refuses a file. Both are sorted.
  void Tell(Checkpoint& checkpoint) const;

 private:
  Budget& budget_;
  std::set<std::string> names_;  // "module.name", long ones cut.
};

// Whether torch.load(weights_only=True) of PyTorch 2.13 takes a pickle that names this, for what is
// in its own list: users can add to that.
bool IsAllowedByWeightsOnly(std::string_view module_and_name);

}  // namespace ckptfs::torch
