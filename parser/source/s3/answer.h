// What the servers and programs around S3 answer: small documents in JSON and XML.
//
// Nobody vouches for them. JSON goes through the reader that checkpoints go through; XML through
// pugixml, which resolves no entities of a document's own and takes memory in proportion to a text.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

// The members of an object in JSON that are texts. Throws Error(EBADMSG) if it is no object.
std::map<std::string, std::string> TextMembers(const std::string& json);

// Credentials as containers, instances and programs answer them: AccessKeyId, SecretAccessKey,
// Token or SessionToken, Expiration. Throws Error: EACCES if they are refused or not there,
// EBADMSG. Messages have nothing of the answer in them but its error code.
CredentialsPtr CredentialsInJson(const std::string& json, const std::string& origin);

// Credentials as the security token service answers them. Throws as CredentialsInJson does.
CredentialsPtr CredentialsInXml(const std::string& xml, const std::string& origin);

// What a service says that has failed, in XML; what it does not say is empty.
struct Failure {
  std::string code;     // "NoSuchKey".
  std::string message;  // For people.
  std::string region;   // Where the bucket is.
};

Failure FailureIn(const std::string& xml);

// Reads "2026-11-22T04:00:00Z", with a fraction and another zone, too; seconds since the epoch.
// Nothing if it is no such time.
std::optional<int64_t> ParseTime(std::string_view text);

}  // namespace ckptfs::s3
