// The files of a repository, as its server lists them: pages of JSON, an array of
//
//   {"type": "file", "path": "sub/config.json", "size": 12, "oid": "<id of a git blob>"}
//
// and, of a large file, also "lfs": {"oid": "<SHA-256>", "size": 12}. Other types are folders,
// which the paths of files contain, too. The header "Link: <URL>; rel="next"" leads to the next
// page.
//
// https://huggingface.co/docs/hub/api

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/source/http/client.h"
#include "parser/source/http/url.h"

namespace ckptfs::hub {

// Identifies the bytes of a file, in whatever revision and repository.
struct ContentId {
  std::array<std::byte, 32> bytes{};
  size_t size = 0;  // 32: the SHA-256; 20: the id of the git blob.

  bool is_sha256() const { return size == bytes.size(); }

  // In lower case, as ETags and file names in the local cache contain it.
  std::string Hex() const;
};

struct File {
  std::string path;
  uint64_t size = 0;  // In bytes.
  ContentId id;
};

// Immutable after construction.
class Listing {
 public:
  // `files` have plain paths. Throws Error(EBADMSG) if two of them have the same path but are
  // different, or if one has the path of a folder.
  explicit Listing(std::vector<File> files);

  const std::vector<File>& files() const { return files_; }  // Sorted by path.

  // Returns null if there is no such file.
  const File* Find(std::string_view path) const;

  // `folder` is empty or ends with '/'.
  bool HasFolder(std::string_view folder) const;

  // Return the names in a folder, sorted by their bytes.
  std::vector<std::string> FilesIn(std::string_view folder) const;
  std::vector<std::string> FoldersIn(std::string_view folder) const;

 private:
  // Calls `visit(name, is_folder)` for each entry of `folder`.
  void Visit(std::string_view folder,
             const std::function<void(std::string_view name, bool is_folder)>& visit) const;

  std::vector<File> files_;
};

// Returns the URL that the header of `response` calls "next"; empty if there is none.
std::string FindNextPage(const http::Response& response);

// Lists the files below `folder`, which is empty or ends with '/'. `first` is the URL of the first
// page; `fetch` returns a page. Files whose names are invalid in a file system are omitted. Throws
// Error: those of `fetch`; EBADMSG if a page is malformed, contains another folder, or continues on
// another server; EFBIG if there are more than kMostFiles files or they take more than 32 MiB.
Listing List(std::string_view folder, const http::Url& first,
             const std::function<http::Response(const http::Url&)>& fetch);

}  // namespace ckptfs::hub
