#include "parser/source/http/web_access.h"

#include <cerrno>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::http {
namespace {

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// What servers say to a signed URL that has expired.
bool IsRefusal(int status) {
  return status == 400 || status == 401 || status == 403 || status == 404 || status == 410;
}

// Where a redirect leads.
Url UrlIn(const Response& response) {
  try {
    return ParseUrl(response.location);
  } catch (const Error& e) {
    Fail(EREMOTEIO, "the server redirects to nowhere: {}", e.what());
  }
}

}  // namespace

WebAccess::WebAccess(Url start, std::shared_ptr<Authorization> authorization)
    : start_(std::move(start)), authorization_(std::move(authorization)), place_(start_) {}

Request WebAccess::Prepare(const std::vector<std::string>& headers) {
  Request request;
  request.headers = headers;
  const std::scoped_lock lock(mutex_);
  request.url = place_.text;
  if (std::string header = authorization_->HeaderFor(place_); !header.empty()) {
    request.headers.push_back(std::move(header));
    request.has_secret = true;
  }
  return request;
}

bool WebAccess::Recover(const Request& request, const Response& response) {
  {
    const std::scoped_lock lock(mutex_);
    // Another thread has been told the same, and acted on it.
    if (request.url != place_.text) return true;
    if (IsRedirect(response.status) && !response.location.empty()) return Follow(response);
    if (place_.text != start_.text && IsRefusal(response.status) && GoBack()) return true;
  }
  if (response.status == 401 && authorization_->Renew()) return true;
  FailFor(response);
}

bool WebAccess::Follow(const Response& response) {
  constexpr int kMostRedirects = 10;
  if (++redirects_ > kMostRedirects) {
    Fail(EREMOTEIO, "the server redirects more than {} times", kMostRedirects);
  }
  constexpr size_t kLongest = 8192;
  if (response.location.size() > kLongest) {
    Fail(EREMOTEIO, "the server redirects to a URL of more than {} bytes", kLongest);
  }
  Url next = UrlIn(response);
  if (place_.scheme == "https" && next.scheme != "https") {
    Fail(EACCES, "the server redirects from https to http, where anybody could read along");
  }
  place_ = std::move(next);
  return true;
}

bool WebAccess::GoBack() {
  constexpr int kMostReturns = 2;
  if (++returns_ > kMostReturns) return false;
  redirects_ = 0;
  place_ = start_;
  return true;
}

void WebAccess::Succeeded() {
  const std::scoped_lock lock(mutex_);
  redirects_ = 0;
  returns_ = 0;
}

void WebAccess::FailFor(const Response& response) const {
  const std::string& what = authorization_->what();
  switch (response.status) {
    case 401:
      if (!what.empty()) Fail(EACCES, "the server does not accept {}", what);
      Fail(EACCES,
           "needs authorisation: put user and password into a netrc file, or name a file with a "
           "token by -o token_file=");
    case 403:
      Fail(EACCES, "the server denies access{}{}", what.empty() ? "" : " with ", what);
    case 404:
    case 410:
      Fail(ENOENT, "the server has no such file");
    case 407:
      Fail(EACCES, "{}", kProxyWantsPassword);
    default:
      Fail(EREMOTEIO, "the server answers with status {}", response.status);
  }
}

}  // namespace ckptfs::http
