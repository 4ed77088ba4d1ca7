// Which version of an object an answer is of.

#pragma once

#include <cstdint>
#include <string>

#include "parser/io/byte_source.h"
#include "parser/source/http/client.h"

namespace ckptfs::http {

struct Version {
  uint64_t size = 0;

  // As the server writes them; empty if it does not.
  std::string tag;
  std::string last_modified;

  // The header that asks for this version alone; empty if there is nothing to ask by.
  std::string Condition() const;
};

// What the first answer tells, of which `size` is the length of the whole.
Version VersionOf(const Response& response, uint64_t size);

// Throws Fault if the body of `response` is in a coding, so that its bytes are not those of the
// object.
void RequireUncoded(const Response& response);

// Throws unless `response`, whose status is 200 or 206, brings exactly the bytes `range` of
// `version`: Error(ESTALE) if it is about another version, Fault if it is about other bytes.
void RequirePart(const Response& response, ByteRange range, const Version& version);

// Returns `range` as messages call it: "bytes 0 to 65535".
std::string NameOf(ByteRange range);

// Returns the header that asks for `range`, which is not empty.
std::string RangeHeader(ByteRange range);

[[noreturn]] void FailChanged();

}  // namespace ckptfs::http
