#include "parser/source/s3/listing.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <pugixml.hpp>
#include <unordered_set>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/io/folder.h"
#include "parser/source/s3/uri.h"

namespace ckptfs::s3 {
namespace {

// A key is up to 1024 bytes, three times that when it is encoded: a page stays below the 1 MiB that
// is taken of an answer.
constexpr const char* kKeysOnAPage = "250";

constexpr uint64_t kMostMemory = uint64_t{32} << 20U;

// Bytes. Some servers have the last key as the token, which is encoded.
constexpr size_t kLongestToken = 8192;

// Servers may send fewer keys on a page than they are asked for, and even none.
constexpr size_t kMostPages = 4000;

void Sort(std::vector<std::string>& names) {
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

// Collects the pages of one listing.
class Collector {
 public:
  explicit Collector(std::string_view prefix) : prefix_(prefix) {}

  void Add(const Page& page) {
    for (const std::string& key : page.keys) Add(key, listing_.files);
    for (const std::string& found : page.prefixes) {
      if (found.ends_with('/')) {
        Add(std::string_view(found).substr(0, found.size() - 1), listing_.folders);
      }
    }
  }

  Listing Take() {
    Sort(listing_.files);
    Sort(listing_.folders);
    return std::move(listing_);
  }

 private:
  void Add(std::string_view key, std::vector<std::string>& names) {
    if (!key.starts_with(prefix_)) {
      Fail(EBADMSG, "the server lists {}, which was not asked for", Quoted(key));
    }
    const std::string_view name = key.substr(prefix_.size());
    if (!IsPlainName(name)) return;
    if (listing_.files.size() + listing_.folders.size() == kMostFiles) {
      Fail(EFBIG, "has more than {} files", kMostFiles);
    }
    budget_.Charge(sizeof(std::string) + name.size());
    names.emplace_back(name);
  }

  const std::string_view prefix_;
  Budget budget_{kMostMemory};
  Listing listing_;
};

}  // namespace

Page ReadPage(const std::string& xml) {
  pugi::xml_document document;
  const pugi::xml_parse_result result =
      document.load_buffer(xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata);
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!result || !root) Fail(EBADMSG, "the server does not answer with a listing in XML");
  const bool is_encoded = std::string_view(root.child_value("EncodingType")) == "url";
  const auto text = [&](const pugi::xml_node& node, const char* name) {
    return is_encoded ? Decoded(node.child_value(name)) : std::string(node.child_value(name));
  };
  Page page;
  for (const pugi::xml_node& object : root.children("Contents")) {
    page.keys.push_back(text(object, "Key"));
  }
  for (const pugi::xml_node& common : root.children("CommonPrefixes")) {
    page.prefixes.push_back(text(common, "Prefix"));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    page.next = root.child_value("NextContinuationToken");
    if (page.next.empty()) {
      Fail(EBADMSG, "the server's listing goes on, but it does not say where");
    }
  }
  return page;
}

Listing List(std::string_view prefix, const std::function<std::string(const Query&)>& ask) {
  Collector collector(prefix);
  std::unordered_set<size_t> asked;  // Hashes of the tokens of all pages so far.
  std::string next;
  for (size_t pages = 0; pages < kMostPages; ++pages) {
    Query query = {{"list-type", "2"},
                   {"delimiter", "/"},
                   {"encoding-type", "url"},
                   {"max-keys", kKeysOnAPage},
                   {"prefix", std::string(prefix)}};
    if (!next.empty()) query.emplace_back("continuation-token", next);
    Page page = ReadPage(ask(query));
    collector.Add(page);
    if (page.next.empty()) return collector.Take();
    if (page.next.size() > kLongestToken ||
        !asked.insert(std::hash<std::string>()(page.next)).second) {
      Fail(EBADMSG, "the server's listing does not go on");
    }
    next = std::move(page.next);
  }
  Fail(EFBIG, "the server's listing has more than {} pages", kMostPages);
}

}  // namespace ckptfs::s3
