// A bucket of S3 or a compatible server.
//
// AWS returns the region of a bucket and its own time with errors. The first request may therefore
// fail; all later ones use the region and the clock offset of its response.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/io/source_options.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {

// Thread-safe.
class AwsBucket final : public Bucket {
 public:
  // Reads the files of the AWS tools and finds credentials, which may send requests and run
  // programs. Throws Error as Config, ResolveEndpoint and FindCredentials do.
  AwsBucket(std::string name, const Environment& environment, const SourceOptions& options);

  // Signs the request, unless there are no credentials. `headers` are not signed. Throws Error as
  // CredentialsCache::Get does.
  http::PreparedRequest Prepare(std::string_view key, const Query& query,
                                const std::vector<std::string>& headers) override;

  // Uses another region, corrects the clock or renews the credentials.
  bool Recover(const http::PreparedRequest& prepared, const http::Response& response) override;

  void Succeeded() override;

 private:
  AwsBucket(std::string name, const Environment& environment, const SourceOptions& options,
            const Config& config);

  CredentialsPtr Find() const;
  CredentialsPtr GetCredentials();  // Null: requests are not signed.
  Endpoint FindEndpoint(const Config& config);

  // Each returns whether the next request may succeed.
  bool FollowRegion(uint64_t generation, std::string_view region);
  bool CorrectClock(uint64_t generation, const http::Response& response);

  const std::string name_;
  const Environment environment_;
  bool is_open_ = false;  // The constructor has ended.
  CredentialsCache credentials_;
  const Endpoint endpoint_;

  Mutex mutex_;
  std::string region_ GUARDED_BY(mutex_);
  int64_t clock_offset_ GUARDED_BY(mutex_) =
      0;                                        // Seconds that the server's clock is ahead of ours.
  uint64_t generation_ GUARDED_BY(mutex_) = 0;  // Number of changes of the two above.
  int moves_ GUARDED_BY(mutex_) = 0;            // To other regions, in a row.
  int corrections_ GUARDED_BY(mutex_) = 0;      // Of the clock, in a row.
};

}  // namespace ckptfs::s3
