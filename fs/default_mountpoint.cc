#include "fs/default_mountpoint.h"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "parser/error.h"
#include "parser/folder.h"
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

}  // namespace

std::string DefaultMountpoint(const std::string& source) {
  constexpr std::string_view kAfterScheme = "://";
  const std::string_view scheme = SchemeNameOf(source);
  std::string_view path = source;
  if (!scheme.empty()) {
    path.remove_prefix(scheme.size() + kAfterScheme.size());
    path = path.substr(0, path.find_first_of("?#"));
    // The host, or the bucket, and who asks for it are no name of a file.
    path.remove_prefix(std::min(path.find('/'), path.size()));
  }
  std::string_view name = WithoutSuffixes(TakeName(path));
  // The files that formats have in a directory, such as ".metadata", say nothing about it.
  if (name.empty() || (name.starts_with('.') && name != "." && name != "..")) {
    name = WithoutSuffixes(TakeName(path));
  }
  if (!IsPlainName(name)) {
    Fail(EINVAL, "{}: name a mount point: there is no name to make one of", Redacted(source));
  }
  return std::string(name);
}

}  // namespace ckptfs
