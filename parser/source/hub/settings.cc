#include "parser/source/hub/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"

namespace ckptfs::hub {
namespace {

// As in Python's client.
bool IsTrue(const std::string& value) {
  constexpr std::array<std::string_view, 4> kTrue = {"1", "on", "yes", "true"};
  return std::ranges::count(kTrue, ToLower(value)) != 0;
}

// Returns an absolute path, because files are read again whatever the working directory is then;
// empty if `path` begins with '~' and there is no home directory.
std::string Absolute(const Environment& environment, const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return std::filesystem::absolute(path).string();
  const std::string home = environment("HOME");
  return home.empty() ? "" : std::filesystem::absolute(home + path.substr(1)).string();
}

// Returns the path that the variable `name` contains, or else that of `file` in the directory of
// the client.
std::string FindPath(const Environment& environment, const char* name, std::string_view file) {
  if (const std::string path = environment(name); !path.empty()) {
    return Absolute(environment, path);
  }
  std::string home = environment("HF_HOME");
  if (home.empty()) {
    const std::string cache = environment("XDG_CACHE_HOME");
    home = (cache.empty() ? "~/.cache" : cache) + "/huggingface";
  }
  const std::string path = Absolute(environment, home);
  return path.empty() ? "" : fmt::format("{}/{}", path, file);
}

http::Token FindImplicitToken(const Environment& environment) {
  if (IsTrue(environment("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return {};
  if (const std::string text = environment("HF_TOKEN"); !Trim(text).empty()) {
    constexpr std::string_view kOrigin = "the token in HF_TOKEN";
    return {.value = ParseToken(text, kOrigin), .origin = std::string(kOrigin), .file = ""};
  }
  const std::string path = FindPath(environment, "HF_TOKEN_PATH", "token");
  if (path.empty()) return {};
  const std::optional<std::string> text = ReadOptionalFile(path, "token file");
  if (!text || Trim(*text).empty()) return {};
  const std::string origin = fmt::format("the token in {}", Quoted(path));
  return {.value = ParseToken(*text, origin), .origin = origin, .file = path};
}

}  // namespace

http::Url FindEndpoint(const Environment& environment) {
  std::string text = environment("HF_ENDPOINT");
  if (text.empty()) text = "https://huggingface.co";
  while (text.ends_with('/')) text.pop_back();
  try {
    http::Url url = http::ParseUrl(text);
    if (url.has_user || url.text.find('?') != std::string::npos) {
      Fail(EINVAL, "a user or a query in the URL");
    }
    return url;
  } catch (const Error& e) {
    throw WithContext("HF_ENDPOINT", e);
  }
}

http::Token FindToken(const Environment& environment, const http::Url& endpoint,
                      const SourceOptions& options) {
  if (!options.token_file.empty()) {
    const std::string path = std::filesystem::absolute(options.token_file).string();
    http::Token token{.value = ReadToken(path),
                      .origin = fmt::format("the token in {}", Quoted(path)),
                      .file = path};
    if (!endpoint.IsPrivate()) {
      Fail(EINVAL,
           "insecure HF_ENDPOINT: a token is sent over https or to this machine, not over "
           "http");
    }
    return token;
  }
  http::Token token = FindImplicitToken(environment);
  if (token.value.empty() || endpoint.IsPrivate()) return token;
  if (options.warn)
    options.warn(fmt::format("{}: {} is not sent over http", endpoint.Origin(), token.origin));
  return {};
}

std::string FindCache(const Environment& environment) {
  return FindPath(environment, "HF_HUB_CACHE", "hub");
}

bool IsOffline(const Environment& environment) { return IsTrue(environment("HF_HUB_OFFLINE")); }

}  // namespace ckptfs::hub
