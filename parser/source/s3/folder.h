// Folders of a bucket.
//
// S3 has no folders. A listing returns the keys with one prefix up to the next '/': keys without a
// further '/', and the common prefixes of the others. It consists of pages of XML, as ListObjectsV2
// defines it. Keys are percent-encoded there, since they may contain characters that XML cannot.
//
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/io/remote_object.h"
#include "parser/scheme.h"
#include "parser/source/http/headers.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {

// Names of files and of folders without the prefix, sorted by their bytes, without duplicates.
// Omits names that are invalid in a file system, the folder itself, and empty objects with the name
// of a folder, which some programs create.
struct Listing {
  std::vector<std::string> files;
  std::vector<std::string> folders;
  std::map<std::string, http::Version, std::less<>> versions;  // Of files; tags may be weak.
};

// One page of a listing: whole keys, decoded.
struct Page {
  std::vector<std::string> keys;
  std::vector<http::Version> versions;  // Of the keys, in their order.
  std::vector<std::string> prefixes;    // Each ends with '/'.
  std::string next;                     // Token of the next page; empty for the last page.
};

// Throws Error(EBADMSG) if `xml` is not a listing.
Page ParsePage(const std::string& xml);

// Collects the pages of the folder `prefix`, which is empty or ends with '/'. `fetch` returns the
// page of a token, the first one for an empty token. Throws as List does.
Listing CollectPages(std::string_view prefix,
                     const std::function<Page(const std::string& token)>& fetch);

// Lists the folder `prefix`, which is empty or ends with '/'. `fetch` returns the XML of one page
// for its query. Throws Error: those of `fetch`, EBADMSG if a page is malformed or of another
// folder, EFBIG if there are more than kMostFiles names or they take more than 32 MiB.
Listing List(std::string_view prefix, const std::function<std::string(const Query&)>& fetch);

// Returns the folder of the keys with `prefix`, which is empty or ends with '/'. Sends no request
// until it is used, and lists each folder once. `name` is for messages; it ends with '/'.
RemoteFolderPtr MakeBucketFolder(std::shared_ptr<Bucket> bucket, std::string prefix,
                                 std::string name);

// Opens the object `id`, or the folder of that name. `root` is the URI of the bucket, which ends
// with '/', and `name` that of the object; both are for messages. Throws Error: ENOENT if there is
// neither, and as OpenObject and List do.
RemoteSource OpenInBucket(const std::shared_ptr<Bucket>& bucket, const ObjectId& id,
                          const std::string& root, std::string name);

}  // namespace ckptfs::s3
