#include "parser/source/s3/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "parser/base/error.h"

namespace ckptfs::s3 {
namespace {

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool IsOfRegion(std::string_view code) {
  return code == "AuthorizationHeaderMalformed" || code == "IllegalLocationConstraintException";
}

bool IsOfToken(std::string_view code) {
  constexpr std::array<std::string_view, 4> kCodes = {"ExpiredToken", "ExpiredTokenException",
                                                      "InvalidToken", "TokenRefreshRequired"};
  return std::ranges::find(kCodes, code) != kCodes.end();
}

// "AccessDenied, 'User is not authorized'". Some servers have codes only, and some not even those.
std::string WhatIsSaid(const http::Response& response, const Failure& failure) {
  if (failure.code.empty()) return fmt::format("status {}", response.status);
  if (failure.message.empty()) return failure.code;
  return fmt::format("{}, {}", failure.code, Quoted(failure.message));
}

[[noreturn]] void FailMissing(const http::Response& response, const Failure& failure) {
  if (failure.code == "NoSuchBucket") Fail(ENOENT, "there is no such bucket: NoSuchBucket");
  if (response.Find("x-amz-delete-marker") == "true") {
    Fail(ENOENT, "the object is deleted: an older version can be named by ?versionId=");
  }
  Fail(ENOENT, "the bucket has no such object: {}", WhatIsSaid(response, failure));
}

[[noreturn]] void FailRefused(const http::Response& response, const Failure& failure,
                              std::string_view origin) {
  const std::string said = WhatIsSaid(response, failure);
  if (failure.code == "InvalidObjectState") {
    Fail(EACCES, "the object is in an archive, and has to be restored first: {}", said);
  }
  if (failure.code == "RequestTimeTooSkewed") {
    Fail(EACCES, "the server's clock and ours differ, and its answers do not help: {}", said);
  }
  if (origin.empty()) {
    Fail(EACCES, "the server denies access to a request without credentials: {}", said);
  }
  Fail(EACCES, "the server denies access with the credentials of {}: {}", origin, said);
}

}  // namespace

Remedy RemedyFor(const http::Response& response, const Failure& failure) {
  const int status = response.status;
  if (IsRedirect(status) || IsOfRegion(failure.code)) return Remedy::kRegion;
  if (failure.code == "RequestTimeTooSkewed") return Remedy::kClock;
  if (status == 401 || status == 403 || IsOfToken(failure.code)) return Remedy::kRenew;
  return Remedy::kNone;
}

void FailFor(const http::Response& response, const Failure& failure, std::string_view origin) {
  const int status = response.status;
  if (status == 404 || response.Find("x-amz-delete-marker") == "true") {
    FailMissing(response, failure);
  }
  if (status == 407) Fail(EACCES, "{}", http::kProxyWantsPassword);
  if (status == 401 || status == 403 || IsOfToken(failure.code)) {
    FailRefused(response, failure, origin);
  }
  if (IsRedirect(status) || IsOfRegion(failure.code)) {
    Fail(EREMOTEIO, "the bucket is elsewhere, and the server does not say in which region: {}",
         WhatIsSaid(response, failure));
  }
  Fail(EREMOTEIO, "the server answers with status {}{}{}", status, failure.code.empty() ? "" : ": ",
       failure.code.empty() ? "" : WhatIsSaid(response, failure));
}

}  // namespace ckptfs::s3
