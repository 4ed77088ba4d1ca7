#include "parser/source/s3/folder.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/access.h"
#include "parser/source/s3/listing.h"

namespace ckptfs::s3 {
namespace {

void RequirePlain(const std::string& name) {
  if (!IsPlainName(name)) Fail(EBADMSG, "is not the name of a file in the directory");
}

// The body of the answer to a request about the bucket itself.
std::string Ask(Bucket& bucket, const Query& query) {
  constexpr int kOk = 200;
  while (true) {
    http::Request request;
    const auto prepare = [&] { return request = bucket.Prepare("", query, {}); };
    http::Response response = http::Call(bucket.client(), prepare, bucket.options());
    if (response.status == kOk) {
      bucket.Succeeded();
      return std::move(response.body);
    }
    if (!bucket.Recover(request, response)) {
      Fail(EREMOTEIO, "the server answers with status {}", response.status);
    }
  }
}

class BucketFolder final : public Folder {
 public:
  BucketFolder(std::shared_ptr<Bucket> bucket, std::string prefix, std::string name)
      : bucket_(std::move(bucket)), prefix_(std::move(prefix)), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  bool is_remote() const override { return true; }

  std::vector<std::string> List() const override { return Contents()->files; }
  std::vector<std::string> ListFolders() const override { return Contents()->folders; }

  // Does not look at the listing: who may read an object may not list it.
  ByteSourcePtr Open(const std::string& name) const override {
    RequirePlain(name);
    return bucket_->options().cached(OpenObject(bucket_, prefix_ + name, "", name_ + name));
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    RequirePlain(name);
    if (!std::ranges::binary_search(Contents()->folders, name)) return nullptr;
    const std::scoped_lock lock(mutex_);
    FolderPtr& folder = folders_[name];
    if (!folder) folder = MakeFolder(bucket_, prefix_ + name + "/", name_ + name + "/");
    return folder;
  }

 private:
  std::shared_ptr<const Listing> Contents() const {
    {
      const std::scoped_lock lock(mutex_);
      if (listing_) return listing_;
    }
    auto listing = std::make_shared<const Listing>(
        s3::List(prefix_, [&](const Query& query) { return Ask(*bucket_, query); }));
    const std::scoped_lock lock(mutex_);
    if (!listing_) listing_ = std::move(listing);
    return listing_;
  }

  const std::shared_ptr<Bucket> bucket_;
  const std::string prefix_;
  const std::string name_;

  mutable std::mutex mutex_;  // Guards all below. Not held while the server is asked.
  mutable std::shared_ptr<const Listing> listing_;  // Null: not asked for yet.
  mutable std::map<std::string, FolderPtr> folders_;
};

}  // namespace

FolderPtr MakeFolder(std::shared_ptr<Bucket> bucket, std::string prefix, std::string name) {
  return std::make_shared<BucketFolder>(std::move(bucket), std::move(prefix), std::move(name));
}

}  // namespace ckptfs::s3
