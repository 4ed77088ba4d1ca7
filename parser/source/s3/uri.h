// What names an object in S3.
//
// A key is any UTF-8 text of up to 1024 bytes: "a b", "50%", "x?y#z", "d//e" and "d/./e" are all
// good. So in s3://bucket/key all that follows the bucket is the key as it is, with nothing
// percent-encoded, as the AWS tools have it. The one exception is "?versionId=" and a version at
// the end.

#pragma once

#include <string>
#include <string_view>

namespace ckptfs::s3 {

struct Location {
  std::string bucket;
  std::string key;      // Empty or ends with '/': a folder.
  std::string version;  // Empty: the newest.

  bool is_folder() const { return key.empty() || key.ends_with('/'); }
};

// Reads "s3://bucket/key". Throws Error(EINVAL).
Location ParseUri(std::string_view uri);

// Returns `text` as it goes over the wire and into signatures: all is percent-encoded but letters,
// digits and "-._~", and '/' unless `with_slashes`.
std::string Encoded(std::string_view text, bool with_slashes);

// The opposite, as listings need it: also of '+', which stands for a space there. What is no
// percent-encoding stays.
std::string Decoded(std::string_view text);

}  // namespace ckptfs::s3
