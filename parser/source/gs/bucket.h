// A bucket of Google Cloud Storage, by its XML interface, which lists as S3 does.
//
// https://docs.cloud.google.com/storage/docs/xml-api/overview

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parser/source/s3/bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"

namespace ckptfs::gs {

// Thread-safe.
class Bucket final : public s3::Bucket {
 public:
  // Finds a token. Throws Error as FindToken does, and EINVAL if STORAGE_EMULATOR_HOST is not a URL,
  // or a token would be sent to it in the clear.
  Bucket(std::string name, const s3::Environment& environment, const SourceOptions& options);

  http::PreparedRequest Prepare(std::string_view key, const s3::Query& query,
                                const std::vector<std::string>& headers) override;
  bool Recover(const http::PreparedRequest& prepared, const http::Response& response) override;

 private:
  s3::CredentialsPtr GetToken();  // Null: anonymous.

  const std::string name_;
  const std::string server_;  // "https://storage.googleapis.com".
  s3::CredentialsCache tokens_;
};

}  // namespace ckptfs::gs
