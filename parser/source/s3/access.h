// How an object in a bucket is asked for.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parser/source/http/object.h"
#include "parser/source/s3/bucket.h"

namespace ckptfs::s3 {

// Where a bucket keeps old versions, the version that the first answer is of is asked for from then
// on, so that it stays readable when there is a newer one.
class ObjectAccess final : public http::Access {
 public:
  // `version` is empty for the newest.
  ObjectAccess(std::shared_ptr<Bucket> bucket, std::string key, std::string version);

  http::Request Prepare(const std::vector<std::string>& headers) override;
  bool Recover(const http::Request& request, const http::Response& response) override;
  std::string Pin(const http::Response& response) override;
  void Succeeded() override { bucket_->Succeeded(); }

 private:
  const std::shared_ptr<Bucket> bucket_;
  const std::string key_;

  std::mutex mutex_;
  std::string version_;
};

// Opens an object; `name` is what messages call it. Throws Error as http::OpenObject does.
RemoteObjectPtr OpenObject(const std::shared_ptr<Bucket>& bucket, const std::string& key,
                           const std::string& version, std::string name);

}  // namespace ckptfs::s3
