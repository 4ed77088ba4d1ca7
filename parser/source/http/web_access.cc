#include "parser/source/http/web_access.h"

#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/http/headers.h"

namespace ckptfs::http {
namespace {

// Whether `status` is one that servers return for a signed URL that has expired.
bool IsExpired(int status) {
  return status == 400 || status == 401 || status == 403 || status == 404 || status == 410;
}

Url ParseLocation(const Response& response) {
  try {
    return ParseUrl(response.location);
  } catch (const Error& e) {
    Fail(EREMOTEIO, "invalid redirect: {}", e.what());
  }
}

}  // namespace

WebAccess::WebAccess(Url start, std::shared_ptr<Authorization> authorization)
    : start_(std::move(start)), authorization_(std::move(authorization)), target_(start_) {}

PreparedRequest WebAccess::Prepare(const std::vector<std::string>& headers) {
  PreparedRequest prepared;
  prepared.request.headers = headers;
  const MutexLock lock(mutex_);
  prepared.generation = generation_;
  prepared.request.url = target_.text;
  if (std::string header = authorization_->HeaderFor(target_); !header.empty()) {
    prepared.request.headers.push_back(std::move(header));
    prepared.request.has_secret = true;
  }
  return prepared;
}

bool WebAccess::Recover(const PreparedRequest& prepared, const Response& response) {
  {
    const MutexLock lock(mutex_);
    if (prepared.generation != generation_) return true;  // Another thread has recovered.
    if (IsRedirect(response.status) && !response.location.empty()) return Follow(response);
    if (target_.text != start_.text && IsExpired(response.status) && Restart()) return true;
  }
  if (response.status == 401 && authorization_->Renew()) return true;
  ThrowError(response);
}

void WebAccess::MoveTo(Url target) {
  target_ = std::move(target);
  ++generation_;
}

bool WebAccess::Follow(const Response& response) {
  constexpr int kMostRedirects = 10;
  if (++redirects_ > kMostRedirects) {
    Fail(EREMOTEIO, "too many redirects: more than {}", kMostRedirects);
  }
  constexpr size_t kLongest = 8192;
  if (response.location.size() > kLongest) {
    Fail(EREMOTEIO, "invalid redirect: the URL has more than {} bytes", kLongest);
  }
  Url next = ParseLocation(response);
  if (target_.scheme == "https" && next.scheme != "https") {
    Fail(EACCES, "insecure redirect from https to http");
  }
  MoveTo(std::move(next));
  return true;
}

bool WebAccess::Restart() {
  constexpr int kMostRestarts = 2;
  if (++restarts_ > kMostRestarts) return false;
  redirects_ = 0;
  MoveTo(start_);
  return true;
}

void WebAccess::Succeeded() {
  const MutexLock lock(mutex_);
  redirects_ = 0;
  restarts_ = 0;
}

void WebAccess::ThrowError(const Response& response) const {
  const std::string& origin = authorization_->origin();
  switch (response.status) {
    case 401:
      if (!origin.empty()) Fail(EACCES, "authentication failed with {}", origin);
      Fail(EACCES,
           "authentication required: put user and password into a netrc file, or a token into a "
           "file for -o token_file=");
    case 403:
      Fail(EACCES, "permission denied{}{}", origin.empty() ? "" : " with ", origin);
    case 404:
    case 410:
      Fail(ENOENT, "no such file on the server");
    case 407:
      Fail(EACCES, "{}", kProxyNeedsPassword);
    default:
      Fail(EREMOTEIO, "server returned status {}", response.status);
  }
}

}  // namespace ckptfs::http
