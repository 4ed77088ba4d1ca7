// Where an object in S3 is: its URI, and the server of its bucket.
//
// A key is any UTF-8 text of up to 1024 bytes: "a b", "50%", "x?y#z", "d//e" and "d/./e" are valid.
// In s3://bucket/key, as in the AWS tools, the key is therefore not encoded and extends to the end,
// except for "?versionId=" and a version there.
//
// AWS has one host for each region, and each bucket is a subdomain of it ("virtual-hosted style").
// A bucket with a dot in its name, which no certificate covers, or with an upper-case letter is
// part of the path. Other services have one host, and most expect the bucket in the path.

#pragma once

#include <string>
#include <string_view>

#include "parser/io/location.h"
#include "parser/io/source_options.h"
#include "parser/source/s3/config.h"

namespace ckptfs::s3 {

struct ObjectId {
  std::string bucket;
  std::string key;      // Empty or ends with '/': a folder.
  std::string version;  // Empty: the latest.

  bool is_folder() const { return key.empty() || key.ends_with('/'); }
};

// Parses "s3://bucket/key". Throws Error(EINVAL).
ObjectId ParseUri(const Location& uri);

struct Endpoint {
  std::string scheme = "https";
  std::string host;         // With its port; empty: AWS.
  std::string path;         // Before all keys; begins with '/' if it is not empty.
  bool is_virtual = false;  // Of other hosts than AWS: the bucket is a subdomain.
  bool is_path = false;     // The bucket is always part of the path.

  bool is_aws() const { return host.empty(); }
};

// Returns the endpoint of the options, the environment or the files. Throws Error(EINVAL) if it is
// not a URL.
Endpoint ResolveEndpoint(const Config& config, const SourceOptions& options);

// Parses a URL; the default scheme is https. s3.amazonaws.com stands for AWS in any region. Throws
// Error(EINVAL).
Endpoint ParseEndpoint(std::string_view url);

// The server and the path of a bucket.
struct BucketAddress {
  std::string origin;  // "https://host:port".
  std::string host;    // With its port.
  std::string path;    // Before the key, percent-encoded, ends with '/'.
};

BucketAddress ResolveBucket(const Endpoint& endpoint, std::string_view bucket,
                            std::string_view region);

// Returns the domain of AWS in `region`.
std::string_view AwsDomain(std::string_view region);

// Whether `region` is a valid name.
bool IsRegion(std::string_view region);

}  // namespace ckptfs::s3
