// A container of Azure Blob Storage: az://account/container/path, where the path is not encoded.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parser/io/location.h"
#include "parser/source/az/shared_key.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"

namespace ckptfs::az {

struct BlobId {
  std::string account;
  s3::ObjectId blob;  // The bucket is the container.

  // Returns the URI of the container: "az://account/container/".
  std::string Root() const;
};

// Throws Error(EINVAL).
BlobId ParseUri(const Location& uri);

// Parses the XML of List Blobs. Throws Error(EBADMSG) if it is none.
s3::Page ParsePage(const std::string& xml);

// Thread-safe.
class Container final : public s3::Bucket {
 public:
  // Requests are signed with AZURE_STORAGE_KEY, or have AZURE_STORAGE_SAS_TOKEN in their URLs, or
  // are anonymous. If AZURE_STORAGE_ACCOUNT is set, these are for that account only. Throws Error:
  // EACCES or EINVAL if a variable is malformed, or a SAS token would be sent in the clear.
  Container(const BlobId& id, const s3::Environment& environment, const SourceOptions& options);

  http::PreparedRequest Prepare(std::string_view key, const s3::Query& query,
                                const std::vector<std::string>& headers) override;
  bool Recover(const http::PreparedRequest& prepared, const http::Response& response) override;
  s3::Listing List(std::string_view prefix) override;

 private:
  const std::string name_;
  const std::string server_;  // "https://account.blob.core.windows.net".
  std::string path_;          // Of the server, before the container: empty or "/account".
  Account account_;
  std::string shared_access_signature_;  // A query, encoded; empty: none.
};

}  // namespace ckptfs::az
