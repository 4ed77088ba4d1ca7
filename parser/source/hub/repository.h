// A repository on the hub: requests for it, and what its error responses mean.
//
// The revision is resolved to its commit once, and all later requests are for that commit, which
// never changes.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "parser/io/folder.h"
#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/http/url.h"
#include "parser/source/http/web_access.h"
#include "parser/source/hub/listing.h"
#include "parser/source/hub/local_cache.h"
#include "parser/source/hub/location.h"
#include "parser/source/hub/settings.h"

namespace ckptfs::hub {

// All files and folders of a mount share one. Thread-safe.
class Repository : public std::enable_shared_from_this<Repository> {
 public:
  // Resolves the revision, which sends a request unless it is a commit. Throws Error: EINVAL for
  // invalid settings, and as List does.
  Repository(RepositoryId id, const Environment& environment, const SourceOptions& options);
  Repository(const Repository&) = delete;
  Repository& operator=(const Repository&) = delete;
  ~Repository() = default;

  const RepositoryId& id() const { return id_; }
  const std::string& commit() const { return commit_; }

  // Lists all files below `folder`, which is empty or ends with '/'. Throws Error: ENOENT if the
  // folder does not exist, EACCES, EREMOTEIO, and as hub::List does.
  Listing List(std::string_view folder) const;

  // Opens a file of a listing, from the local cache if it is there. Sends no request. `name` is for
  // messages. Throws Error as FileCount does.
  RemoteObjectPtr Open(const File& file, std::string name) const;

  // Whether `url` is on the server that the token is for.
  bool IsOnHub(const std::string& url) const;

  // Throws the Error for a response of the hub with this status: ENOENT, EACCES or EREMOTEIO.
  [[noreturn]] void FailFor(const http::Response& response) const;

 private:
  std::string ResolveRevision() const;
  http::Url UrlOf(std::string_view path) const;
  http::Response Get(const http::Url& url) const;

  const RepositoryId id_;
  const SourceOptions options_;
  const http::Url endpoint_;
  const std::shared_ptr<http::Client> client_;
  const std::shared_ptr<http::Authorization> authorization_;
  const std::string commit_;  // After what ResolveRevision uses.
  const BlobCache blobs_;
  mutable FileCount files_;  // That were opened.
};

using RepositoryPtr = std::shared_ptr<const Repository>;

}  // namespace ckptfs::hub
