// Shared Key: the signature of requests to Azure Storage with the key of the account.
//
// It covers the method, the path, the query, the headers x-ms-* and some others, Range and If-Match
// among them.
//
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key

#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/secret.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::az {

struct Account {
  std::string name;
  std::shared_ptr<const SecretBytes> key;  // Decoded; null: requests are not signed.
};

// Decodes a key in base64. Throws Error(EACCES) if it is none; `origin` is for the message.
std::shared_ptr<const SecretBytes> ParseKey(std::string_view base64, std::string_view origin);

// A GET without a body.
struct UnsignedGet {
  std::string path;                  // As in the URL, encoded.
  s3::Query query;                   // Not encoded.
  std::vector<std::string> headers;  // "Name: value".
};

// Returns the header Authorization of `request`, which has a header x-ms-date. Precondition: the
// account has a key.
std::string Sign(const UnsignedGet& request, const Account& account);

// Returns `time` in the form of HTTP: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string FormatHttpDate(std::time_t time);

}  // namespace ckptfs::az
