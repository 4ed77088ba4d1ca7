// Responses of S3 and of the services that issue credentials: small documents in JSON and XML.
//
// They are not trusted. JSON is parsed by the reader for checkpoints; XML by pugixml, which expands
// no entities of a document and takes memory in proportion to its size.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "parser/source/http/client.h"
#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

// Parses the credentials that containers, instances and programs return: AccessKeyId,
// SecretAccessKey, Token or SessionToken, Expiration. Throws Error: EACCES if they are refused or
// missing, EBADMSG. Of the response, messages contain the error code only.
CredentialsPtr ParseJsonCredentials(const std::string& json, const std::string& origin);

// Parses the credentials that the security token service returns. Throws as ParseJsonCredentials
// does.
CredentialsPtr ParseXmlCredentials(const std::string& xml, const std::string& origin);

// The body of an error response, in XML. Missing members are empty.
struct ErrorResponse {
  std::string code;     // "NoSuchKey".
  std::string message;  // For people.
  std::string region;   // Of the bucket.
};

ErrorResponse ParseErrorResponse(const std::string& xml);

// The action to take before the request is sent again.
enum class RetryAction : uint8_t {
  kNone,
  kRegion,  // Use the region of the response.
  kClock,   // Sign with the time of the server.
  kRenew,   // Look for other credentials.
};

RetryAction RetryActionFor(const http::Response& response, const ErrorResponse& error);

// Throws the Error for `response`: ENOENT, EACCES or EREMOTEIO. `origin` is where the credentials
// of the request are from; empty if it was not signed.
[[noreturn]] void FailFor(const http::Response& response, const ErrorResponse& error,
                          std::string_view origin);

// Parses "2026-11-22T04:00:00Z", optionally with a fraction or another time zone, into seconds
// since the epoch. Returns nothing if `text` is malformed.
std::optional<int64_t> ParseTime(std::string_view text);

}  // namespace ckptfs::s3
