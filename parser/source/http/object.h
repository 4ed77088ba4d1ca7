// Objects on HTTP servers: pinned to a version, validated, and retried after transient errors.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/http/headers.h"

namespace ckptfs::http {

// A request, and what Access::Recover has to know about how it was made.
struct PreparedRequest {
  Request request;

  // The generation of the access's state (redirect target, region, clock) that the request was made
  // from. Recover compares it with the current one: if they differ, another thread has recovered.
  uint64_t generation = 0;

  std::string access_key;  // That the request is signed with; empty if it is not signed.

  // Identifies the object instead of the URL, which has a signature in it; else empty.
  std::string object_url;
};

// Makes the requests for one object: their URL and their credentials. Thread-safe. Blocking calls
// end soon after a Cancellation.
class Access {
 public:
  virtual ~Access() = default;

  // Returns a GET for the object. `headers` are added to it: "Range: bytes=0-65535".
  virtual PreparedRequest Prepare(const std::vector<std::string>& headers) = 0;

  // Handles a response whose status is neither 200, 206, 412, 416 nor transient (408, 429, 5xx).
  // Returns true if the next request may succeed: credentials were renewed, a redirect was
  // followed, the clock was corrected. The number of such attempts in a row is limited. Throws
  // Error otherwise: EACCES, ENOENT, ...
  virtual bool Recover(const PreparedRequest& prepared, const Response& response) = 0;

  // Pins the version of the first response, besides the ETag: in S3 by a version id, which later
  // requests contain. Returns that id; empty if there is none.
  virtual std::string Pin(const Response& /*response*/) { return {}; }

  // Checks that `response`, whose status is 200 or 206, belongs to `version`. Throws Error(ESTALE)
  // if it does not.
  virtual void ValidateVersion(const PreparedRequest& /*prepared*/, const Response& response,
                               const Version& version) const {
    http::ValidateVersion(response, version);
  }

  // Records that a request succeeded: resets the limits of Recover.
  virtual void Succeeded() {}
};

// Opens the object at `access`. `name` is for messages. Sends one request, which also returns the
// first bytes. Throws Error: ENOENT, EACCES, ENOTSUP if the server does not support range requests
// and options.download is not set, or as RemoteObject::Fetch does.
RemoteObjectPtr OpenObject(std::string name, std::shared_ptr<Client> client,
                           std::shared_ptr<Access> access, const SourceOptions& options);

// The properties of an object in a listing.
struct Listed {
  Version version;       // With a strong tag, unless the access validates versions itself.
  std::string identity;  // As of RemoteObject; empty: the URL and the tag are.
  std::optional<std::array<std::byte, 32>> sha256;
};

// The same for an object of a listing. Sends no request.
RemoteObjectPtr OpenListedObject(std::string name, std::shared_ptr<Client> client,
                                 std::shared_ptr<Access> access, const SourceOptions& options,
                                 Listed listed);

// Sends the request that `prepare` returns, and retries it after transient errors. For requests
// that do not fetch objects: listings, tokens.
Response PerformWithRetries(Client& client, const std::function<Request()>& prepare,
                            const SourceOptions& options);

}  // namespace ckptfs::http
