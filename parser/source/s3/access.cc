#include "parser/source/s3/access.h"

#include <string_view>
#include <utility>

namespace ckptfs::s3 {
namespace {

// What buckets that keep no versions call the only one.
constexpr std::string_view kNoVersion = "null";

constexpr size_t kLongestVersion = 1024;

}  // namespace

ObjectAccess::ObjectAccess(std::shared_ptr<Bucket> bucket, std::string key, std::string version)
    : bucket_(std::move(bucket)), key_(std::move(key)), version_(std::move(version)) {}

http::Request ObjectAccess::Prepare(const std::vector<std::string>& headers) {
  Query query;
  {
    const std::scoped_lock lock(mutex_);
    if (!version_.empty()) query.emplace_back("versionId", version_);
  }
  return bucket_->Prepare(key_, query, headers);
}

bool ObjectAccess::Recover(const http::Request& request, const http::Response& response) {
  return bucket_->Recover(request, response);
}

std::string ObjectAccess::Pin(const http::Response& response) {
  const std::string_view told = response.Find("x-amz-version-id");
  const std::scoped_lock lock(mutex_);
  if (version_.empty() && told != kNoVersion && told.size() <= kLongestVersion) version_ = told;
  return version_;
}

RemoteObjectPtr OpenObject(const std::shared_ptr<Bucket>& bucket, const std::string& key,
                           const std::string& version, std::string name) {
  bucket->CountObject();
  return http::OpenObject(std::move(name), bucket->shared_client(),
                          std::make_shared<ObjectAccess>(bucket, key, version), bucket->options());
}

}  // namespace ckptfs::s3
