#include "parser/source/s3/bucket.h"

#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/source/s3/folder.h"

namespace ckptfs::s3 {

Bucket::Bucket(const SourceOptions& options, const std::string& ca_file)
    : options_(options),
      client_(std::make_shared<http::Client>(
          http::Client::Options{.ca_file = ca_file, .user_agent = options.user_agent})) {}

Listing Bucket::List(std::string_view prefix) {
  return s3::List(prefix, [this](const Query& query) { return Fetch(query); });
}

std::string Bucket::Fetch(const Query& query) {
  while (true) {
    http::PreparedRequest prepared;
    const auto prepare = [&] {
      prepared = Prepare("", query, {});
      return prepared.request;
    };
    http::Response response = http::PerformWithRetries(client(), prepare, options());
    if (response.status == http::kOk) {
      Succeeded();
      return std::move(response.body);
    }
    if (!Recover(prepared, response)) {
      Fail(EREMOTEIO, "server returned status {}", response.status);
    }
  }
}

namespace {

// Requests for one object. Pins its version, if the bucket keeps old ones.
class ObjectAccess final : public http::Access {
 public:
  ObjectAccess(std::shared_ptr<Bucket> bucket, std::string key, std::string version)
      : bucket_(std::move(bucket)), key_(std::move(key)), version_(std::move(version)) {}

  http::PreparedRequest Prepare(const std::vector<std::string>& headers) override {
    Query query;
    {
      const MutexLock lock(mutex_);
      if (!version_.empty()) query.emplace_back("versionId", version_);
    }
    return bucket_->Prepare(key_, query, headers);
  }

  bool Recover(const http::PreparedRequest& prepared, const http::Response& response) override {
    return bucket_->Recover(prepared, response);
  }

  std::string Pin(const http::Response& response) override {
    constexpr std::string_view kNoVersion = "null";  // In buckets without versions.
    constexpr size_t kLongestVersion = 1024;
    const std::string_view version = response.Find("x-amz-version-id");
    const MutexLock lock(mutex_);
    if (version_.empty() && version != kNoVersion && version.size() <= kLongestVersion) {
      version_ = version;
    }
    return version_;
  }

  void Succeeded() override { bucket_->Succeeded(); }

 private:
  const std::shared_ptr<Bucket> bucket_;
  const std::string key_;

  Mutex mutex_;
  std::string version_ GUARDED_BY(mutex_);  // Empty: the latest.
};

}  // namespace

RemoteObjectPtr OpenObject(const std::shared_ptr<Bucket>& bucket, const std::string& key,
                           const std::string& version, std::string name) {
  bucket->CountObject();
  return http::OpenObject(std::move(name), bucket->shared_client(),
                          std::make_shared<ObjectAccess>(bucket, key, version), bucket->options());
}

RemoteObjectPtr OpenListedObject(const std::shared_ptr<Bucket>& bucket, const std::string& key,
                                 std::string name, http::Version version) {
  bucket->CountObject();
  return http::OpenListedObject(std::move(name), bucket->shared_client(),
                                std::make_shared<ObjectAccess>(bucket, key, ""), bucket->options(),
                                {.version = std::move(version), .identity = "", .sha256 = {}});
}

}  // namespace ckptfs::s3
