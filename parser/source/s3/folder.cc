#include "parser/source/s3/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/mutex.h"
#include "parser/base/text.h"
#include "parser/io/folder.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/location.h"

namespace ckptfs::s3 {
namespace {

// A key has up to 1024 bytes, three times that when it is encoded: a page stays below the 1 MiB
// that a response may have.
constexpr const char* kKeysPerPage = "250";

constexpr uint64_t kMostMemory = uint64_t{32} << 20U;

// Bytes. The token of some servers is the last key, encoded.
constexpr size_t kLongestPageToken = 8192;

// Servers may return fewer keys per page than requested, even none.
constexpr size_t kMostPages = 4000;

void Sort(std::vector<std::string>& names) {
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

// Returns "2009-10-12T17:50:30.000Z" as a date of HTTP; nothing if it is malformed.
std::string HttpDateOf(std::string_view text) {
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  constexpr size_t kLength = 19;  // Up to the seconds.
  if (text.size() < kLength || text[4] != '-' || text[7] != '-' || text[10] != 'T') return {};
  const auto month = ParseNumber<uint8_t>(text.substr(5, 2));
  if (!month || *month < 1 || *month > kMonths.size()) return {};
  return fmt::format("{} {} {} {} GMT", text.substr(8, 2), kMonths.at(*month - 1U),
                     text.substr(0, 4), text.substr(11, 8));
}

// Collects the pages of one listing.
class Collector {
 public:
  explicit Collector(std::string_view prefix) : prefix_(prefix) {}

  void Add(const Page& page) {
    for (size_t i = 0; i < page.keys.size(); ++i) {
      if (Add(page.keys[i], listing_.files)) AddVersion(page.versions.at(i));
    }
    for (const std::string& found : page.prefixes) {
      if (found.ends_with('/')) {
        Add(std::string_view(found).substr(0, found.size() - 1), listing_.folders);
      }
    }
  }

  Listing Take() {
    Sort(listing_.files);
    Sort(listing_.folders);
    std::erase_if(listing_.files, [this](const std::string& name) { return IsMarker(name); });
    return std::move(listing_);
  }

 private:
  // Whether the file is an empty object that some programs create for a folder.
  bool IsMarker(const std::string& name) {
    const auto version = listing_.versions.find(name);
    if (version == listing_.versions.end() || version->second.size != 0 ||
        !std::ranges::binary_search(listing_.folders, name)) {
      return false;
    }
    listing_.versions.erase(version);
    return true;
  }

  // Returns whether the name is valid.
  bool Add(std::string_view key, std::vector<std::string>& names) {
    if (!key.starts_with(prefix_)) {
      Fail(EBADMSG, "unexpected key in a listing (found {}, expected prefix {})", Quoted(key),
           Quoted(prefix_));
    }
    const std::string_view name = key.substr(prefix_.size());
    if (!IsPlainName(name)) return false;
    if (listing_.files.size() + listing_.folders.size() == kMostFiles) {
      Fail(EFBIG, "has more than {} files", kMostFiles);
    }
    budget_.Charge(sizeof(std::string) + name.size());
    names.emplace_back(name);
    return true;
  }

  // Adds the version of the last file.
  void AddVersion(const http::Version& version) {
    const std::string& name = listing_.files.back();
    budget_.Charge(sizeof(*listing_.versions.begin()) + name.size() + version.tag.size() +
                   version.last_modified.size());
    listing_.versions.emplace(name, version);
  }

  const std::string_view prefix_;
  Budget budget_{kMostMemory};
  Listing listing_;
};

// Returns the version of an object in a listing; without a tag if it is incomplete.
http::Version VersionOf(const pugi::xml_node& object) {
  const auto size = http::ParseLength(object.child_value("Size"));
  if (!size) return {};
  return {.size = *size,
          .tag = object.child_value("ETag"),
          .last_modified = HttpDateOf(object.child_value("LastModified"))};
}

}  // namespace

Page ParsePage(const std::string& xml) {
  pugi::xml_document document;
  const pugi::xml_parse_result result =
      document.load_buffer(xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata);
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!result || !root) Fail(EBADMSG, "malformed listing: not in XML");
  const bool is_encoded = std::string_view(root.child_value("EncodingType")) == "url";
  const auto text = [&](const pugi::xml_node& node, const char* name) {
    std::string value = node.child_value(name);
    if (!is_encoded) return value;
    std::ranges::replace(value, '+', ' ');
    return PercentDecode(value);
  };
  Page page;
  for (const pugi::xml_node& object : root.children("Contents")) {
    page.keys.push_back(text(object, "Key"));
    page.versions.push_back(VersionOf(object));
  }
  for (const pugi::xml_node& common : root.children("CommonPrefixes")) {
    page.prefixes.push_back(text(common, "Prefix"));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    page.next = root.child_value("NextContinuationToken");
    if (page.next.empty()) {
      Fail(EBADMSG, "malformed listing: missing continuation token");
    }
  }
  return page;
}

Listing CollectPages(std::string_view prefix,
                     const std::function<Page(const std::string& token)>& fetch) {
  Collector collector(prefix);
  std::unordered_set<size_t> seen;  // Hashes of the tokens of all pages so far.
  std::string next;
  for (size_t pages = 0; pages < kMostPages; ++pages) {
    Page page = fetch(next);
    collector.Add(page);
    if (page.next.empty()) return collector.Take();
    if (page.next.size() > kLongestPageToken || !seen.insert(HashOf(page.next)).second) {
      Fail(EBADMSG, "malformed listing: repeated continuation token");
    }
    next = std::move(page.next);
  }
  Fail(EFBIG, "listing too long: more than {} pages", kMostPages);
}

Listing List(std::string_view prefix, const std::function<std::string(const Query&)>& fetch) {
  return CollectPages(prefix, [&](const std::string& token) {
    Query query = {{"list-type", "2"},
                   {"delimiter", "/"},
                   {"encoding-type", "url"},
                   {"max-keys", kKeysPerPage},
                   {"prefix", std::string(prefix)}};
    if (!token.empty()) query.emplace_back("continuation-token", token);
    return ParsePage(fetch(query));
  });
}

namespace {

void RequirePlain(const std::string& name) {
  if (!IsPlainName(name)) Fail(EBADMSG, "invalid file name");
}

class BucketFolder final : public RemoteFolder {
 public:
  BucketFolder(std::shared_ptr<Bucket> bucket, std::string prefix, std::string name)
      : bucket_(std::move(bucket)), prefix_(std::move(prefix)), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  std::vector<std::string> List() const override { return GetListing()->files; }
  std::vector<std::string> ListFolders() const override { return GetListing()->folders; }

  // Does not list the folder: permission to read an object does not include that.
  RemoteObjectPtr Open(const std::string& name) const override {
    RequirePlain(name);
    return OpenObject(bucket_, prefix_ + name, "", name_ + name);
  }

  // Uses the listing if there is one.
  RemoteObjectPtr OpenData(const std::string& name) const override {
    RequirePlain(name);
    const auto listing = [this] {
      const MutexLock lock(mutex_);
      return listing_;
    }();
    if (!listing) return Open(name);
    const auto version = listing->versions.find(name);
    if (version == listing->versions.end() || !http::IsStrongTag(version->second.tag)) {
      return Open(name);
    }
    return OpenListedObject(bucket_, prefix_ + name, name_ + name, version->second);
  }

  RemoteFolderPtr OpenFolder(const std::string& name) const override {
    RequirePlain(name);
    if (!std::ranges::binary_search(GetListing()->folders, name)) return nullptr;
    const MutexLock lock(mutex_);
    RemoteFolderPtr& folder = folders_[name];
    if (!folder) folder = MakeBucketFolder(bucket_, prefix_ + name + "/", name_ + name + "/");
    return folder;
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    RequirePlain(name);
    const auto listing = GetListing();
    // A file hides the folder of the same name.
    if (const auto found = listing->versions.find(name); found != listing->versions.end()) {
      const http::Version& version = found->second;
      return EntryInfo{
          .size = version.size,
          .modified = {.tv_sec = http::ParseDate(version.last_modified).value_or(0), .tv_nsec = 0},
          .version = version.tag + version.last_modified};
    }
    if (std::ranges::binary_search(listing->folders, name)) return EntryInfo{.is_folder = true};
    return std::nullopt;
  }

  void ForgetListing() const override {
    const MutexLock lock(mutex_);
    listing_.reset();
  }

 private:
  std::shared_ptr<const Listing> GetListing() const {
    {
      const MutexLock lock(mutex_);
      if (listing_) return listing_;
    }
    auto listing = std::make_shared<const Listing>(bucket_->List(prefix_));
    const MutexLock lock(mutex_);
    if (!listing_) listing_ = std::move(listing);
    return listing_;
  }

  const std::shared_ptr<Bucket> bucket_;
  const std::string prefix_;
  const std::string name_;

  mutable Mutex mutex_;                                                // Not held during requests.
  mutable std::shared_ptr<const Listing> listing_ GUARDED_BY(mutex_);  // Null: not fetched yet.
  mutable std::map<std::string, RemoteFolderPtr> folders_ GUARDED_BY(mutex_);
};

// Whether `folder` has objects that may be listed.
bool HasContents(const RemoteFolder& folder) {
  try {
    return !folder.List().empty() || !folder.ListFolders().empty();
  } catch (const Error& e) {
    if (e.code() != ENOENT && e.code() != EACCES) throw;
    return false;
  }
}

}  // namespace

RemoteFolderPtr MakeBucketFolder(std::shared_ptr<Bucket> bucket, std::string prefix,
                                 std::string name) {
  return std::make_shared<BucketFolder>(std::move(bucket), std::move(prefix), std::move(name));
}

RemoteSource OpenInBucket(const std::shared_ptr<Bucket>& bucket, const ObjectId& id,
                          const std::string& root, std::string name) {
  const auto folder = [&](const std::string& prefix) {
    return MakeBucketFolder(bucket, prefix, root + prefix);
  };
  if (id.is_folder()) {
    RemoteFolderPtr named = folder(id.key);
    if (named->List().empty() && named->ListFolders().empty()) {
      Fail(ENOENT, "no such object or folder");
    }
    return {.object = nullptr, .folder = std::move(named), .file_name = ""};
  }
  const std::string prefix = id.key.substr(0, id.key.rfind('/') + 1);
  // As with local folders, the slash is optional. An empty object may mark a folder.
  const RemoteFolderPtr below = folder(id.key + "/");
  RemoteSource named{.object = nullptr, .folder = below, .file_name = ""};
  try {
    RemoteObjectPtr object = OpenObject(bucket, id.key, id.version, std::move(name));
    if (object->size() == 0 && id.version.empty() && HasContents(*below)) return named;
    return {.object = std::move(object),
            .folder = folder(prefix),
            .file_name = id.key.substr(prefix.size())};
  } catch (const Error& e) {
    if (e.code() != ENOENT || !id.version.empty() || !HasContents(*below)) throw;
    return named;
  }
}

}  // namespace ckptfs::s3
