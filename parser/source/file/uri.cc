#include "parser/source/file/uri.h"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/source/http/url.h"

namespace ckptfs::file {

std::string PathOf(const std::string& uri) {
  constexpr std::string_view kScheme = "file://";
  if (!uri.starts_with(kScheme)) return uri;
  const std::string_view rest = std::string_view(uri).substr(kScheme.size());
  const std::string_view host = rest.substr(0, rest.find('/'));
  if (host == rest || host == "." || host == "..") {
    Fail(EINVAL, "the path of a file URI is absolute, as in file:///dir/model.pth");
  }
  if (!host.empty() && !http::IsLocalhost(host)) {
    Fail(EINVAL, "a file URI names no host but localhost, as in file:///dir/model.pth");
  }
  std::string path = PercentDecoded(rest.substr(host.size()));
  if (path.find('\0') != std::string::npos) Fail(EINVAL, "there is a NUL in the path");
  return path;
}

}  // namespace ckptfs::file
