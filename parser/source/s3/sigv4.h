// How a request proves who sends it: Signature Version 4 of AWS.
//
// What is signed is a text that is made of the request: method, path, sorted query, some headers
// and the hash of the body. The key for it is derived from the secret by the day, the region and
// the service, so that what is seen of it is worth little. Server and client have to agree on each
// byte of that text, so paths and queries are encoded here, and go over the wire as they are
// signed. Headers Range and If-Match are left unsigned: proxies and caches may split and add them.
//
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
//
// libcurl could sign too, but what it makes of queries and paths differs from version to version.

#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

// Names and values as they are, not encoded.
using Query = std::vector<std::pair<std::string, std::string>>;

// Returns the query as it goes over the wire, sorted: "a=1&b=%20". Empty if there is none.
std::string CanonicalQuery(const Query& query);

struct Unsigned {
  std::string method = "GET";
  std::string host;   // With its port, if that is not the usual one.
  std::string path;   // As it goes over the wire: "/a%20b".
  std::string query;  // From CanonicalQuery.
  std::vector<std::pair<std::string, std::string>> headers;  // Names in lower case.
  std::string body;
};

// Where signatures count.
struct Scope {
  std::string region;
  std::string service = "s3";
};

// Returns headers for the request, "Name: value": those of `request` and the four that sign it, as
// of the time `now`. Host goes without saying.
std::vector<std::string> Sign(const Unsigned& request, const Scope& scope,
                              const Credentials& credentials, std::time_t now);

}  // namespace ckptfs::s3
