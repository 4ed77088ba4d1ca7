// Where the arrays and tables are in a text in JSON.

#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

#include "parser/base/budget.h"
#include "parser/codec/json_document.h"

namespace ckptfs::zanj {

// Finds them once, so that each dict and list knows whether it has one in it, however deep.
class Leaves {
 public:
  // Throws Error(EFBIG).
  Leaves(json::Node root, Budget& budget);

  // Whether `node`, which is in the same document, is or has an array or a table.
  bool AreIn(json::Node node) const;

 private:
  void Collect(json::Node node);

  std::pmr::vector<size_t> begins_;  // In the document; sorted.
};

}  // namespace ckptfs::zanj
