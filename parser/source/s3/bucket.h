// A bucket: requests for it, and how they recover from errors.
//
// AWS returns the region of a bucket and its own time with errors. The first request may therefore
// fail; all later ones use the region and the clock offset of its response.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/io/folder.h"
#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {

// All objects and folders of a mount share one. Thread-safe.
class Bucket {
 public:
  // Reads the files of the AWS tools and finds credentials, which may send requests and run
  // programs. Throws Error as Config, ResolveEndpoint and FindCredentials do.
  Bucket(std::string name, const Environment& environment, const SourceOptions& options);
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;
  ~Bucket() = default;

  const SourceOptions& options() const { return options_; }
  http::Client& client() { return *client_; }
  std::shared_ptr<http::Client> shared_client() { return client_; }

  // Returns a GET for `key`, or for the bucket itself if it is empty. It is signed, unless there
  // are no credentials. `headers`, "Name: value", are added unsigned. Throws Error as
  // CredentialsCache::Get does.
  http::PreparedRequest Prepare(std::string_view key, const Query& query,
                                const std::vector<std::string>& headers);

  // Handles an error response as http::Access::Recover does: uses another region, corrects the
  // clock or renews the credentials. Throws Error: ENOENT, EACCES, EREMOTEIO, and those of the
  // renewal.
  bool Recover(const http::PreparedRequest& prepared, const http::Response& response);

  // Counts an object that is to be opened, as FileCount does.
  void CountObject();

  // Records that a request succeeded: resets the limits of Recover.
  void Succeeded();

 private:
  Bucket(std::string name, const Environment& environment, const SourceOptions& options,
         const Config& config);

  CredentialsPtr Find() const;
  CredentialsPtr GetCredentials();  // Null: requests are not signed.
  Endpoint FindEndpoint(const Config& config);

  // Each returns whether the next request may succeed.
  bool FollowRegion(uint64_t generation, std::string_view region);
  bool CorrectClock(uint64_t generation, const http::Response& response);

  const std::string name_;
  const Environment environment_;
  const SourceOptions options_;
  const std::shared_ptr<http::Client> client_;
  bool is_open_ = false;  // The constructor has ended.
  CredentialsCache credentials_;
  const Endpoint endpoint_;

  FileCount files_;  // Objects that were opened, or tried to be.

  Mutex mutex_;
  std::string region_ GUARDED_BY(mutex_);
  int64_t clock_offset_ GUARDED_BY(mutex_) =
      0;                                        // Seconds that the server's clock is ahead of ours.
  uint64_t generation_ GUARDED_BY(mutex_) = 0;  // Number of changes of the two above.
  int moves_ GUARDED_BY(mutex_) = 0;            // To other regions, in a row.
  int corrections_ GUARDED_BY(mutex_) = 0;      // Of the clock, in a row.
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
