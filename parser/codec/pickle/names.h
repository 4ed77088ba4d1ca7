// What Python 2 called things.

#pragma once

#include <string_view>

namespace ckptfs::pickle {

struct GlobalNames {
  std::string_view module;
  std::string_view name;
};

// Returns what Python 3 calls the global that Python 2 calls `names`: as a rule the same.
GlobalNames Python3Names(GlobalNames names);

}  // namespace ckptfs::pickle
