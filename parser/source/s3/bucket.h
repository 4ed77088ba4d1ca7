// A bucket of an object store: S3, or another store whose listings have the form of S3's.
//
// A store defines where requests go, how they are authorised and how they recover from errors.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/io/folder.h"
#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {

struct Listing;  // folder.h

// All objects and folders of a mount share one. Thread-safe.
class Bucket {
 public:
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;
  virtual ~Bucket() = default;

  const SourceOptions& options() const { return options_; }
  http::Client& client() const { return *client_; }
  std::shared_ptr<http::Client> shared_client() const { return client_; }

  // Returns a GET for `key`, or for the bucket itself if it is empty, as authorised as the
  // credentials allow. `headers`, "Name: value", are added. Throws Error if credentials are not
  // available.
  virtual http::PreparedRequest Prepare(std::string_view key, const Query& query,
                                        const std::vector<std::string>& headers) = 0;

  // Handles an error response as http::Access::Recover does. Throws Error: ENOENT, EACCES,
  // EREMOTEIO, and those of a renewal of credentials.
  virtual bool Recover(const http::PreparedRequest& prepared, const http::Response& response) = 0;

  // Records that a request succeeded: resets the limits of Recover.
  virtual void Succeeded() {}

  // Lists the folder `prefix`, as s3::List does.
  virtual Listing List(std::string_view prefix);

  // Counts an object that is to be opened, as FileCount does.
  void CountObject() { files_.Add(); }

 protected:
  // `ca_file` may be empty: the certificates of the system.
  Bucket(const SourceOptions& options, const std::string& ca_file);

  // Returns the body of the response to a request for the bucket itself.
  std::string Fetch(const Query& query);

 private:
  const SourceOptions options_;
  const std::shared_ptr<http::Client> client_;
  FileCount files_;  // Objects that were opened, or tried to be.
};

// Opens an object; `name` is for messages, and an empty `version` stands for the latest one. If the
// bucket keeps old versions, all requests are for the version of the first response, which
// therefore stays readable when there is a newer one. Throws Error as http::OpenObject does.
RemoteObjectPtr OpenObject(const std::shared_ptr<Bucket>& bucket, const std::string& key,
                           const std::string& version, std::string name);

// Opens the latest version of an object that a listing contains, without a request. `version` has a
// strong tag; the first response pins the version id. Throws Error as http::OpenListedObject does.
RemoteObjectPtr OpenListedObject(const std::shared_ptr<Bucket>& bucket, const std::string& key,
                                 std::string name, http::Version version);

}  // namespace ckptfs::s3
