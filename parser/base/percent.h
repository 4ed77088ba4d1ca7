// The percent-encoding of URIs (RFC 3986).

#pragma once

#include <string>
#include <string_view>

namespace ckptfs {

// Percent-encodes all of `name` that has a meaning in a URI.
std::string PercentEncoded(std::string_view name);

// Returns what `text` encodes; what is no code is left as it is.
std::string PercentDecoded(std::string_view text);

}  // namespace ckptfs
