// The verification that -o verify= requests.

#pragma once

#include <memory>

#include "fs/log.h"
#include "fs/options.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// Returns a verification of hashes that reports to `log`, which must outlive it; null if `verify` is
// kOff.
std::shared_ptr<const Verification> VerificationFor(Verify verify, Log& log);

}  // namespace ckptfs
