// Where a bucket is on the web.
//
// AWS has a host for each region, and each bucket is a name below it: "virtual-hosted style". A
// bucket whose name has a dot, which no certificate is good for, or an upper-case letter goes into
// the path. Other services have one host, and mostly want the bucket in the path.

#pragma once

#include <string>
#include <string_view>

#include "parser/io/source_options.h"
#include "parser/source/s3/config.h"

namespace ckptfs::s3 {

struct Endpoint {
  std::string scheme = "https";
  std::string host;         // With its port; empty: that of AWS in the region.
  std::string path;         // Before all keys; begins with '/' if it is not empty.
  bool is_virtual = false;  // Of a host that is not AWS': the bucket is a name below it.
  bool is_path = false;     // The bucket is in the path in any case.

  bool is_aws() const { return host.empty(); }
};

// Returns what the options, the environment and the files say. Throws Error(EINVAL) if that is no
// URL.
Endpoint EndpointFor(const Config& config, const SourceOptions& options);

// Reads a URL; without a scheme it is https. That of s3.amazonaws.com is AWS in any region. Throws
// Error(EINVAL).
Endpoint ParseEndpoint(std::string_view url);

// Where requests about a bucket go.
struct BucketAddress {
  std::string origin;  // "https://host:port".
  std::string host;    // With its port.
  std::string path;    // Before the key, percent-encoded, ends with '/'.
};

BucketAddress AddressOf(const Endpoint& endpoint, std::string_view bucket, std::string_view region);

// The part of all names of AWS' hosts in a region.
std::string_view DomainOfAws(std::string_view region);

// Whether `region` can be the name of one.
bool IsRegion(std::string_view region);

}  // namespace ckptfs::s3
