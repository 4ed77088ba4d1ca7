#include "parser/base/environment.h"

#include <cstdlib>

namespace ckptfs {

std::string GetEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace ckptfs
