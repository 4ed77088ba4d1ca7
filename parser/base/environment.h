// Variables of the environment.

#pragma once

#include <string>

namespace ckptfs {

// Returns the value of the variable `name`; empty if it is not set. No thread may change the
// environment meanwhile, as no thread of ckptfs does.
std::string GetEnvironment(const char* name);

}  // namespace ckptfs
