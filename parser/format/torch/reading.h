// What the pickles of one checkpoint share: there may be one, or a hundred thousand.

#pragma once

#include <memory>
#include <utility>

#include "parser/base/budget.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/sidecar.h"
#include "parser/io/folder.h"
#include "parser/layer/block_cache.h"
#include "parser/read_options.h"

namespace ckptfs::torch {

// Belongs to one thread.
struct Reading {
  // `file` is what is read, if it is one file; `what_for` and `budget_of_all` must outlive this.
  Reading(Budget& budget_of_all, Source file, const ReadOptions& what_for)
      : options(what_for), budget(budget_of_all), sidecar(std::move(file), what_for) {}

  // Adds to a whole checkpoint what was found out on the way.
  void Tell(Checkpoint& checkpoint) const {
    globals.Tell(checkpoint);
    sidecar.Tell(checkpoint);
  }

  const ReadOptions& options;
  Budget& budget;
  Globals globals{budget};
  Sidecar sidecar;

  // What gathered tensors keep between reads; theirs long after this is gone.
  std::shared_ptr<BlockCache> blocks = std::make_shared<BlockCache>();

  // How many files lie in one another here: see saved.h.
  int depth = 0;

  // What is read becomes a part of something larger: its root has one member, whose key is empty
  // and which is the object itself, whatever it is.
  bool is_part = false;
};

}  // namespace ckptfs::torch
