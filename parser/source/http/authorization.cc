#include "parser/source/http/authorization.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/source/http/netrc.h"

namespace ckptfs::http {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string ReadFile(const std::string& path, std::string_view what) {
  constexpr size_t kLargest = 1 << 20;  // Bytes.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (file.number() < 0) FailErrno("cannot open the {} {}", what, Quoted(path));
  std::string text;
  std::array<char, 4096> piece = {};
  while (true) {
    const ssize_t n = ::read(file.number(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot read the {} {}", what, Quoted(path));
    if (n == 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
    if (text.size() > kLargest) {
      Fail(EFBIG, "the {} {} has more than {} bytes", what, Quoted(path), kLargest);
    }
  }
}

// A token is one word of ASCII: anything else would not stay within its header.
std::string RequireToken(std::string_view text, std::string_view what) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::string_view token = text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
  if (token.empty()) Fail(EINVAL, "{} is empty", what);
  if (!std::ranges::all_of(token, [](char c) { return c > ' ' && c < 0x7f; })) {
    Fail(EINVAL, "{} is not one word of printable ASCII characters", what);
  }
  return std::string(token);
}

std::string ReadToken(const std::string& path) {
  return RequireToken(ReadFile(path, "token file"), fmt::format("the token in {}", Quoted(path)));
}

std::string Basic(const std::string& user, const std::string& password) {
  const std::string text = user + ":" + password;
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string encoded(sodium_base64_ENCODED_LEN(text.size(), kVariant), '\0');
  sodium_bin2base64(encoded.data(), encoded.size(),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(), kVariant);
  encoded.pop_back();  // The NUL.
  return "Basic " + encoded;
}

// The user's netrc file need not be there, unless it was named.
std::optional<Login> LoginIn(std::string path, const std::string& host) {
  if (path.empty()) path = Variable("NETRC");
  const bool is_named = !path.empty();
  if (!is_named) {
    const std::string home = Variable("HOME");
    if (home.empty()) return std::nullopt;
    path = home + "/.netrc";
    if (::access(path.c_str(), R_OK) != 0) return std::nullopt;
  }
  return FindLogin(ReadFile(path, "netrc file"), host);
}

bool IsHuggingFace(const Url& url) {
  return url.host == "huggingface.co" || url.host.ends_with(".huggingface.co") ||
         url.host == "hf.co" || url.host.ends_with(".hf.co");
}

}  // namespace

Authorization::Authorization(const Url& url, const SourceOptions& options) : origin_(url.Origin()) {
  if (url.has_user) {
    value_ = Basic(url.user, url.password);
    what_ = "the user and the password in the URL";
    return;
  }
  if (!options.token_file.empty()) {
    // It is read again, wherever the program is then.
    token_file_ = std::filesystem::absolute(options.token_file).string();
    const std::string token = ReadToken(token_file_);
    if (!url.IsPrivate()) {
      Fail(EINVAL, "a token is sent over https or to this machine, but not over http");
    }
    SetToken(token, fmt::format("the token in {}", Quoted(token_file_)));
    return;
  }
  if (const auto login = LoginIn(options.netrc_file, url.host)) {
    value_ = Basic(login->user, login->password);
    what_ = "the user and the password in the netrc file";
    return;
  }
  for (const char* const name : {"CKPTFS_HTTP_TOKEN", "HF_TOKEN"}) {
    const std::string token = Variable(name);
    if (token.empty() || (name == std::string_view("HF_TOKEN") && !IsHuggingFace(url))) continue;
    if (url.IsPrivate()) {
      SetToken(token, fmt::format("the token in {}", name));
      return;
    }
    if (options.warn) {
      options.warn(fmt::format("{}: the token in {} is not sent over http", Shown(url), name));
    }
  }
}

void Authorization::SetToken(std::string_view token, std::string what) {
  value_ = "Bearer " + RequireToken(token, what);
  what_ = std::move(what);
}

std::string Authorization::HeaderFor(const Url& url) const {
  if (url.Origin() != origin_) return {};
  const std::scoped_lock lock(mutex_);
  return value_.empty() ? "" : "Authorization: " + value_;
}

bool Authorization::Renew() {
  if (token_file_.empty()) return false;
  std::string value = "Bearer " + ReadToken(token_file_);
  const std::scoped_lock lock(mutex_);
  return std::exchange(value_, value) != value;
}

}  // namespace ckptfs::http
