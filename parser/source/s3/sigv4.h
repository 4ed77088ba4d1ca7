// AWS Signature Version 4: proves the identity of the sender of a request.
//
// The signature covers method, path, sorted query, some headers and the hash of the body. Its key
// is derived from the secret, the day, the region and the service, so that a leaked one is of
// little use. Client and server must agree on each byte, so paths and queries are encoded here, and
// sent as they are signed. Range and If-Match are not signed: proxies and caches may split and add
// them.
//
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
//
// libcurl can sign, too, but encodes queries and paths differently from version to version.

#pragma once

#include <array>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

using HmacOfSha256 = std::array<unsigned char, 32>;

HmacOfSha256 HmacSha256(std::span<const unsigned char> key, std::string_view text);

// Names and values, not encoded.
using Query = std::vector<std::pair<std::string, std::string>>;

// Returns the encoded query, sorted: "a=1&b=%20". Empty if there is none.
std::string CanonicalQuery(const Query& query);

struct UnsignedRequest {
  std::string method = "GET";
  std::string host;   // With its port, unless it is the default one.
  std::string path;   // Encoded: "/a%20b".
  std::string query;  // From CanonicalQuery.
  std::vector<std::pair<std::string, std::string>> headers;  // Names in lower case.
  std::string body;
};

// Where a signature is valid.
struct Scope {
  std::string region;
  std::string service = "s3";
};

// Returns the headers of the signed request, "Name: value": those of `request` and the four that
// sign it at the time `now`. Host is implied.
std::vector<std::string> Sign(const UnsignedRequest& request, const Scope& scope,
                              const Credentials& credentials, std::time_t now);

}  // namespace ckptfs::s3
