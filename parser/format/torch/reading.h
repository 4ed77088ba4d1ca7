// What the pickles of one checkpoint share: there may be one, or a hundred thousand.

#pragma once

#include <cstdint>
#include <memory>

#include "parser/budget.h"
#include "parser/format/torch/globals.h"
#include "parser/layer/panel_cache.h"

namespace ckptfs::torch {

// Belongs to one thread.
struct Reading {
  // `size` is that of all files, in bytes.
  explicit Reading(uint64_t size) : budget(Budget::ForFile(size)) {}

  Budget budget;
  Globals globals{budget};

  // What gathered tensors keep between reads; theirs long after this is gone.
  std::shared_ptr<PanelCache> panels = std::make_shared<PanelCache>();

  // How many files lie in one another here: see saved.h.
  int depth = 0;

  // What is read becomes a part of something larger: its root has one member, whose key is empty
  // and which is the object itself, whatever it is.
  bool is_part = false;
};

}  // namespace ckptfs::torch
