// A bucket, as we ask for what is in it.
//
// What AWS' tools want told, AWS tells if it is asked wrongly: in which region a bucket is, what
// time it is. So the first request may fail, and what its answer teaches holds for all that follow.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "parser/io/folder.h"
#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"
#include "parser/source/s3/endpoint.h"
#include "parser/source/s3/keeper.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {

// Thread-safe. All objects and folders of a mount share one.
class Bucket {
 public:
  // Reads what the AWS tools read, and finds credentials, which may ask servers and run programs.
  // Throws Error as Config, EndpointFor and FindCredentials do.
  Bucket(std::string name, const Environment& environment, const SourceOptions& options);
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;
  ~Bucket() = default;

  const std::string& name() const { return name_; }
  const SourceOptions& options() const { return options_; }
  http::Client& client() { return *client_; }
  std::shared_ptr<http::Client> shared_client() { return client_; }

  // Returns a GET that is good now: signed, unless we are nobody. An empty `key` asks for the
  // bucket itself. `headers`, "Name: value", go into the request unsigned. Throws Error as
  // CredentialsKeeper::Get does.
  http::Request Prepare(std::string_view key, const Query& query,
                        const std::vector<std::string>& headers);

  // What `response` to `request` means, whose status is neither a success nor worth a try by
  // itself. Returns true if the next request should fare better: the bucket is in another region,
  // our clock was wrong, credentials were renewed. Says so only a few times in a row. Throws Error:
  // ENOENT, EACCES, EREMOTEIO, and what renewing throws.
  bool Recover(const http::Request& request, const http::Response& response);

  // Counts an object that is to be opened, as FileCount does.
  void CountObject();

  // Says that a request has brought what it was for: what Recover is asked next begins a new row.
  void Succeeded();

 private:
  Bucket(std::string name, const Environment& environment, const SourceOptions& options,
         const Config& config);

  CredentialsPtr Find() const;
  CredentialsPtr Ours();  // Null: we are nobody.
  Endpoint FindEndpoint(const Config& config);
  int64_t Now();  // As the server has it.

  // What another try may mend; each returns whether it may. `wanted` is the region that the server
  // tells.
  bool FollowRegion(const http::Request& request, std::string_view wanted);
  bool CorrectClock(const http::Request& request, const http::Response& response);
  // Whether `request` was made for the region that counts now. Called under the mutex.
  bool IsForRegion(const http::Request& request) const;

  const std::string name_;
  const Environment environment_;
  const SourceOptions options_;
  const std::shared_ptr<http::Client> client_;
  bool is_open_ = false;  // The constructor has ended.
  CredentialsKeeper keeper_;
  const Endpoint endpoint_;

  FileCount files_;  // Objects that were opened, or tried to be.

  std::mutex mutex_;  // Guards all below.
  std::string region_;
  int moves_ = 0;             // To other regions, in a row.
  int64_t clock_offset_ = 0;  // Seconds that the server's clock is ahead of ours.
  int corrections_ = 0;       // Of the clock, in a row.
};

}  // namespace ckptfs::s3
