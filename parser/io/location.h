// URIs: their parts, and their redaction for messages.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ckptfs {

// A URI, or a local path without a scheme. Schemes differ in what else they find in the parts: a
// key of S3 may contain '?' and '#', a URL of a web server has a query. Nothing is decoded.
struct Location {
  std::string text;       // The whole, with the scheme in lower case. May contain a secret.
  std::string scheme;     // In lower case, without "://"; empty for a path.
  std::string authority;  // Up to the first '/' after "://": "user:password@host:port".
  std::string path;       // From there to the end; of a path all of it.
};

Location ParseLocation(std::string_view text);

// Returns the scheme of `uri` in lower case; empty for a path.
std::string SchemeNameOf(std::string_view uri);

// Returns `uri` without parts that may be secret: user, password, query and fragment. A path is
// returned unchanged.
std::string Redacted(std::string_view uri);

// Removes a parameter from the end of `text`: "3" if that ends with "?db=3" and `name` is "?db=".
// Returns nothing if `text` does not contain `name`.
std::optional<std::string_view> TakeParameter(std::string_view& text, std::string_view name);

}  // namespace ckptfs
