#include "parser/source/http/authorization.h"

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

}  // namespace ckptfs::http
