// An object on a server that speaks HTTP: pinned to a version, checked, and fetched again after
// faults.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/http/client.h"

namespace ckptfs::http {

// How requests for one object are made: where they go and by whose authority. Thread-safe. Whatever
// waits in it ends soon after a Cancellation.
class Access {
 public:
  virtual ~Access() = default;

  // Returns a GET for the object as it should be sent now. `headers` are those of the range and of
  // the version, "Range: bytes=0-65535", which go into it.
  virtual Request Prepare(const std::vector<std::string>& headers) = 0;

  // What an answer that is neither 200, 206, 412 nor 416 and not worth a try by itself (408, 429,
  // 5xx) means. Returns true if the next request should fare better: credentials were renewed, the
  // object is elsewhere, the clock was wrong. Must say so only a few times in a row. Throws Error
  // with a code and a sentence if it is hopeless: EACCES, ENOENT, ...
  virtual bool Recover(const Request& request, const Response& response) = 0;

  // What besides the ETag pins the version, from the first answer: of S3 the id of a version, which
  // Prepare asks for from then on. Empty if there is no such thing.
  virtual std::string Pin(const Response& /*response*/) { return {}; }

  // Says that a request has brought what it was for: what Recover is asked next begins a new row.
  virtual void Succeeded() {}
};

// Opens the object that `access` leads to; `name` is what messages call it. One request, which
// brings the first bytes, too. Throws Error: ENOENT, EACCES, ENOTSUP if the server cannot serve
// parts of it (and options.download does not help), or as RemoteObject::Fetch does.
RemoteObjectPtr OpenObject(std::string name, std::shared_ptr<Client> client,
                           std::shared_ptr<Access> access, const SourceOptions& options);

// Sends what `prepare` returns until there is an answer that is worth something: faults that may
// pass are waited out as for an object. For requests about objects: listings, tokens.
Response Call(Client& client, const std::function<Request()>& prepare,
              const SourceOptions& options);

}  // namespace ckptfs::http
