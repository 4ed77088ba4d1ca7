#include "parser/source/http/web_access.h"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"
#include "parser/source/http/headers.h"

namespace ckptfs::http {
namespace {

std::string EncodeBasic(const std::string& user, const std::string& password) {
  const std::string text = user + ":" + password;
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string encoded(sodium_base64_ENCODED_LEN(text.size(), kVariant), '\0');
  sodium_bin2base64(encoded.data(), encoded.size(),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(), kVariant);
  encoded.pop_back();  // The NUL.
  return "Basic " + encoded;
}

// A netrc file in the home directory is optional; one that an option or $NETRC names is not.
std::optional<Login> ReadLogin(std::string path, const std::string& host) {
  if (path.empty()) path = GetEnvironment("NETRC");
  const bool is_required = !path.empty();
  if (!is_required) {
    const std::string home = GetEnvironment("HOME");
    if (home.empty()) return std::nullopt;
    path = home + "/.netrc";
    if (::access(path.c_str(), R_OK) != 0) return std::nullopt;
  }
  return FindLogin(ReadSmallFile(path, "netrc file"), host);
}

bool IsHuggingFace(const Url& url) {
  return url.host == "huggingface.co" || url.host.ends_with(".huggingface.co") ||
         url.host == "hf.co" || url.host.ends_with(".hf.co");
}

// Splits the text of a netrc file into words.
class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : rest_(text) {}

  // Returns nothing at the end.
  std::optional<std::string> Next() {
    SkipBlanks();
    while (rest_.starts_with('#')) {
      Skip(rest_.find('\n'));
      SkipBlanks();
    }
    if (rest_.empty()) return std::nullopt;
    return rest_.front() == '"' ? TakeQuoted() : TakePlain();
  }

  void SkipMacro() { Skip(rest_.find("\n\n")); }

 private:
  void Skip(size_t count) { rest_.remove_prefix(std::min(count, rest_.size())); }
  void SkipBlanks() { Skip(rest_.find_first_not_of(kBlanks)); }

  std::string TakePlain() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(kBlanks));
    Skip(word.size());
    return std::string(word);
  }

  std::string TakeQuoted() {
    std::string word;
    Skip(1);
    while (!rest_.empty() && rest_.front() != '"') {
      if (rest_.front() == '\\' && rest_.size() > 1) Skip(1);
      word += rest_.front();
      Skip(1);
    }
    Skip(1);
    return word;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<Login> FindLogin(std::string_view text, std::string_view host) {
  Tokenizer words(text);
  std::optional<Login> found;
  while (const auto word = words.Next()) {
    if (*word == "machine" || *word == "default") {
      if (found) break;
      if (*word == "default" || words.Next() == host) found.emplace();
    } else if (*word == "macdef") {
      words.SkipMacro();
    } else if (*word == "login" || *word == "password" || *word == "account") {
      std::string value = words.Next().value_or("");
      if (!found || *word == "account") continue;
      (*word == "login" ? found->user : found->password) = std::move(value);
    }
  }
  return found;
}

Authorization::Authorization(const Url& url, Token token)
    : server_(url.Origin()), token_file_(std::move(token.file)) {
  if (!token.value.empty()) SetToken(token.value, std::move(token.origin));
}

Authorization::Authorization(const Url& url, const SourceOptions& options) : server_(url.Origin()) {
  if (url.has_user) {
    value_ = EncodeBasic(url.user, url.password);
    origin_ = "the user and the password in the URL";
    return;
  }
  if (!options.token_file.empty()) {
    // Absolute, because it is read again later, whatever the working directory is then.
    token_file_ = std::filesystem::absolute(options.token_file).string();
    const std::string token = ReadToken(token_file_);
    if (!url.IsPrivate()) {
      Fail(EINVAL, "insecure URL: a token is sent over https or to this machine, not over http");
    }
    SetToken(token, fmt::format("the token in {}", Quoted(token_file_)));
    return;
  }
  if (const auto login = ReadLogin(options.netrc_file, url.host)) {
    value_ = EncodeBasic(login->user, login->password);
    origin_ = "the user and the password in the netrc file";
    return;
  }
  for (const char* const name : {"CKPTFS_HTTP_TOKEN", "HF_TOKEN"}) {
    const std::string token = GetEnvironment(name);
    if (token.empty() || (name == std::string_view("HF_TOKEN") && !IsHuggingFace(url))) continue;
    if (url.IsPrivate()) {
      SetToken(token, fmt::format("the token in {}", name));
      return;
    }
    if (options.warn) {
      options.warn(
          fmt::format("{}: the token in {} is not sent over http", WithoutQuery(url), name));
    }
  }
}

void Authorization::SetToken(std::string_view token, std::string origin) {
  std::string value = "Bearer " + ParseToken(token, origin);
  const MutexLock lock(mutex_);
  value_ = std::move(value);
  origin_ = std::move(origin);
}

std::string Authorization::HeaderFor(const Url& url) const {
  if (url.Origin() != server_) return {};
  const MutexLock lock(mutex_);
  return value_.empty() ? "" : "Authorization: " + value_;
}

bool Authorization::Renew() {
  if (token_file_.empty()) return false;
  std::string value = "Bearer " + ReadToken(token_file_);
  const MutexLock lock(mutex_);
  return std::exchange(value_, value) != value;
}

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
  ThrowError(prepared, response);
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

void WebAccess::ThrowError(const PreparedRequest& prepared, const Response& response) const {
  // The target of a redirect gets no credentials.
  const std::string origin = prepared.request.has_secret ? authorization_->origin() : "";
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
