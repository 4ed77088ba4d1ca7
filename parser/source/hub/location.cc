#include "parser/source/hub/location.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/io/folder.h"

namespace ckptfs::hub {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"models", "datasets", "spaces"};

std::string_view NameOf(RepositoryId::Kind kind) { return kKinds.at(static_cast<size_t>(kind)); }

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool IsOfName(char c) { return IsLetter(c) || IsDigit(c) || c == '-' || c == '_' || c == '.'; }

// The rules of the hub; "--" separates names in the local cache.
bool IsName(std::string_view text) {
  constexpr size_t kLongest = 96;
  return !text.empty() && text.size() <= kLongest && std::ranges::all_of(text, IsOfName) &&
         text.front() != '.' && text.front() != '-' && text.back() != '.' && text.back() != '-' &&
         text.find("--") == std::string_view::npos && text.find("..") == std::string_view::npos;
}

// Takes the text up to the next '/', and that, off the front of `rest`.
std::string_view TakeComponent(std::string_view& rest) {
  const size_t end = std::min(rest.find('/'), rest.size());
  const std::string_view component = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return component;
}

RepositoryId::Kind TakeKind(std::string_view& rest) {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (!rest.starts_with(kKinds.at(i)) || rest.substr(kKinds.at(i).size(), 1) != "/") continue;
    TakeComponent(rest);
    return static_cast<RepositoryId::Kind>(i);
  }
  return RepositoryId::Kind::kModel;
}

// Returns the length of "refs/pr/1" or "refs/convert/parquet" at the beginning of `text`, which
// ends there or goes on with '/'; 0 if it begins otherwise.
size_t SpecialRevisionLength(std::string_view text) {
  for (const std::string_view prefix : {"refs/pr/", "refs/convert/"}) {
    if (!text.starts_with(prefix)) continue;
    const size_t end = std::min(text.find('/', prefix.size()), text.size());
    return end > prefix.size() ? end : 0;
  }
  return 0;
}

// A revision is part of URLs, where it is encoded, and of paths in the local cache.
bool IsRevision(std::string_view text) {
  constexpr size_t kLongest = 255;
  return text.size() <= kLongest && utf8::IsValid(text) && IsPlainPath(text) &&
         std::ranges::none_of(text, [](char c) { return (c >= 0 && c <= ' ') || c == 0x7f; });
}

std::string TakeRevision(std::string_view& rest) {
  size_t length = SpecialRevisionLength(rest);
  if (length == 0) length = std::min(rest.find('/'), rest.size());
  std::string revision = PercentDecode(rest.substr(0, length));
  rest.remove_prefix(std::min(length + 1, rest.size()));
  if (revision.empty()) Fail(EINVAL, "missing revision after '@'");
  if (!IsRevision(revision)) Fail(EINVAL, "invalid revision {}", Quoted(revision));
  return revision;
}

}  // namespace

std::string RepositoryId::Uri() const {
  std::string uri = "hf:/" + PagePath();
  if (revision.empty()) return uri;
  const bool is_special = SpecialRevisionLength(revision) == revision.size();
  return uri + "@" + PercentEncode(revision, is_special ? "/" : "");
}

std::string RepositoryId::ApiPath() const { return fmt::format("/api/{}/{}", NameOf(kind), name); }

std::string RepositoryId::PagePath() const {
  return kind == Kind::kModel ? "/" + name : fmt::format("/{}/{}", NameOf(kind), name);
}

std::string RepositoryId::CacheName() const {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return fmt::format("{}--{}", NameOf(kind), name);
  return fmt::format("{}--{}--{}", NameOf(kind), name.substr(0, slash), name.substr(slash + 1));
}

FileId ParseUri(const Location& uri) {
  const std::string text = uri.authority + uri.path;
  std::string_view rest = text;
  FileId id;
  RepositoryId& repository = id.repository;
  repository.kind = TakeKind(rest);
  for (const bool is_last : {false, true}) {
    std::string_view after = rest;
    std::string_view part = TakeComponent(after);
    const size_t at = part.find('@');
    // A user with a password, or a token, which no message may contain.
    if (part.find(':') != std::string_view::npos ||
        (!is_last && at != std::string_view::npos && part.starts_with("hf_"))) {
      Fail(EINVAL, "user or token in place of the repository: put the token into HF_TOKEN");
    }
    if (!is_last && part.empty()) {
      Fail(EINVAL, "missing repository (expected hf://org/name[@revision][/path])");
    }
    if (is_last && part.empty()) break;  // "name/"
    const std::string_view name = part.substr(0, at);
    if (!IsName(name)) Fail(EINVAL, "invalid repository name {}", Quoted(name));
    repository.name += (is_last ? "/" : "") + std::string(name);
    rest = after;
    if (at == std::string_view::npos) continue;
    rest = std::string_view(text).substr(static_cast<size_t>(part.data() - text.data()) + at + 1);
    repository.revision = TakeRevision(rest);
    break;
  }
  id.path = rest;
  const std::string_view path = rest.ends_with('/') ? rest.substr(0, rest.size() - 1) : rest;
  if (!rest.empty() && !IsPlainPath(path)) Fail(EINVAL, "invalid path {}", Quoted(rest));
  return id;
}

bool IsCommit(std::string_view text) {
  constexpr size_t kDigits = 40;
  return text.size() == kDigits &&
         std::ranges::all_of(text, [](char c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); });
}

bool IsPlainPath(std::string_view path) {
  while (true) {
    const size_t end = std::min(path.find('/'), path.size());
    if (!IsPlainName(path.substr(0, end))) return false;
    if (end == path.size()) return true;
    path.remove_prefix(end + 1);
  }
}

}  // namespace ckptfs::hub
