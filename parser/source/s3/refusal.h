// What an answer of S3 means that brings nothing.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/source/http/client.h"
#include "parser/source/s3/answer.h"

namespace ckptfs::s3 {

// What could be done about it.
enum class Remedy : uint8_t {
  kNone,
  kRegion,  // Ask in the region that the server tells.
  kClock,   // Sign by the server's clock.
  kRenew,   // Look for other credentials.
};

Remedy RemedyFor(const http::Response& response, const Failure& failure);

// Throws the Error that tells what `response` means, to which there is no remedy: ENOENT, EACCES or
// EREMOTEIO. `origin` tells whose credentials the request was signed with; empty: nobody's.
[[noreturn]] void FailFor(const http::Response& response, const Failure& failure,
                          std::string_view origin);

}  // namespace ckptfs::s3
