// Texts that a pickle repeats, by number.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "parser/base/budget.h"

namespace ckptfs::dcp {

// Gives equal texts the same number, from 0 on. The texts must outlive it. A pickle has a text that
// it uses often in one place, which is how it is mostly found again; so that a few bytes that name
// a long text once more cost no comparison with others.
class Names {
 public:
  explicit Names(Budget& budget) : by_place_(&budget), by_text_(&budget), texts_(&budget) {}

  // Throws Error(EFBIG).
  uint32_t NumberOf(std::string_view text);

  std::string_view TextOf(uint32_t number) const { return texts_[number]; }
  size_t size() const { return texts_.size(); }

 private:
  std::pmr::unordered_map<const char*, uint32_t> by_place_;
  std::pmr::map<std::string_view, uint32_t> by_text_;
  std::pmr::vector<std::string_view> texts_;
};

}  // namespace ckptfs::dcp
