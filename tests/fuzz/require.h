// Assertions of fuzz targets.

#pragma once

#include <cstdlib>

#include "parser/base/error.h"

namespace ckptfs {

// Aborts unless `holds`, also in release builds.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

// Calls `check`, which may throw an Error, and nothing else.
template <typename Check>
void Try(const Check& check) {
  try {
    check();
  } catch (const Error&) {
    return;
  }
}

}  // namespace ckptfs
