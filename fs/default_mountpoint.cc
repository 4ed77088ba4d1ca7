#include "fs/default_mountpoint.h"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "parser/base/error.h"
#include "parser/base/percent.h"
#include "parser/io/folder.h"
#include "parser/open.h"

namespace ckptfs {
namespace {

constexpr std::string_view kSuffixes[] = {
    ".bin",  ".bz2", ".ckpt",    ".distcp", ".gguf", ".gz", ".index.json", ".json", ".lz4",
    ".nemo", ".npy", ".npz",     ".pickle", ".pkl",  ".pt", ".pt2",        ".pth",  ".safetensors",
    ".tar",  ".tdz", ".tensors", ".tgz",    ".th",   ".xz", ".zanj",       ".zip",  ".zst",
};

// Removes the last name from `path` and returns it.
std::string_view TakeName(std::string_view& path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  path.remove_suffix(name.size());
  return name;
}

std::string_view WithoutSuffixes(std::string_view name) {
  while (true) {
    const auto* const suffix = std::ranges::find_if(
        kSuffixes, [&](std::string_view each) { return name.ends_with(each); });
    if (suffix == std::end(kSuffixes)) return name;
    name.remove_suffix(suffix->size());
  }
}

// Removes "-00001-of-00003", which gguf's splits have: each of them stands for the whole model.
std::string_view WithoutPart(std::string_view name) {
  constexpr std::string_view kForm = "-00000-of-00000";
  constexpr std::string_view kDigits = "0123456789";
  if (name.size() <= kForm.size()) return name;
  const std::string_view part = name.substr(name.size() - kForm.size());
  const bool is_part = std::ranges::equal(part, kForm, [&](char found, char wanted) {
    return wanted == '0' ? kDigits.find(found) != std::string_view::npos : found == wanted;
  });
  return is_part ? name.substr(0, name.size() - kForm.size()) : name;
}

std::string_view NameIn(std::string_view path) {
  const std::string_view last = TakeName(path);
  std::string_view name = WithoutSuffixes(last);
  // The files that formats have in a directory, such as ".metadata", say nothing about it.
  if (name.empty() || (name.starts_with('.') && name != "." && name != "..")) {
    return WithoutSuffixes(TakeName(path));
  }
  return last.ends_with(".gguf") ? WithoutPart(name) : name;
}

// What names a file in `source`: without the host, or the bucket, and who asks for it.
std::string PathIn(const std::string& source) {
  constexpr std::string_view kAfterScheme = "://";
  const std::string_view scheme = SchemeNameOf(source);
  if (scheme.empty()) return source;
  const std::string shown = Redacted(source);
  const std::string_view rest = std::string_view(shown).substr(scheme.size() + kAfterScheme.size());
  const std::string_view path = rest.substr(std::min(rest.find('/'), rest.size()));
  const bool is_encoded = scheme == "file" || scheme == "http" || scheme == "https";
  return is_encoded ? PercentDecoded(path) : std::string(path);
}

}  // namespace

std::string DefaultMountpoint(const std::string& source) {
  const std::string path = PathIn(source);
  const std::string_view name = NameIn(path);
  if (!IsPlainName(name)) {
    Fail(EINVAL, "{}: name a mount point: there is no name to make one of", Redacted(source));
  }
  return std::string(name);
}

}  // namespace ckptfs
