#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/folder.h"
#include "parser/io/location.h"
#include "parser/source/hub/listing.h"
#include "parser/source/hub/location.h"
#include "tests/fuzz/require.h"

namespace ckptfs::hub {
namespace {

// Visits all folders. Returns the number of their files. Names are plain, sorted and unique.
size_t CountFiles(const Listing& listing, const std::string& folder) {
  const auto check = [](const std::vector<std::string>& names) {
    Require(std::ranges::all_of(names, IsPlainName));
    Require(std::ranges::adjacent_find(names, std::greater_equal<>()) == names.end());
  };
  const std::vector<std::string> files = listing.FilesIn(folder);
  const std::vector<std::string> folders = listing.FoldersIn(folder);
  check(files);
  check(folders);
  size_t count = files.size();
  for (const std::string& name : files) Require(listing.Find(folder + name) != nullptr);
  for (const std::string& name : folders) {
    Require(listing.HasFolder(folder + name + "/") && listing.Find(folder + name) == nullptr);
    count += CountFiles(listing, folder + name + "/");
  }
  return count;
}

void CheckListing(const std::string& page, const std::string& folder) {
  const Listing listing = List(folder, http::ParseUrl("http://hub/"), [&](const http::Url&) {
    http::Response response;
    response.body = page;
    return response;
  });
  Require(CountFiles(listing, folder) == listing.files().size());
}

// The first line is a header, too.
void CheckNextPage(const std::string& text) {
  http::Response response;
  response.headers.emplace_back("link", text.substr(0, text.find('\n')));
  const std::string next = FindNextPage(response);
  Require(next.find('>') == std::string::npos);
  Require(text.find(next) != std::string::npos);
}

// An accepted URI identifies the same file when it is formatted and parsed again.
void CheckUri(const std::string& text) {
  const FileId id = ParseUri(ParseLocation(text.starts_with("hf://") ? text : "hf://" + text));
  const FileId again =
      ParseUri(ParseLocation(id.repository.Uri() + (id.path.empty() ? "" : "/") + id.path));
  Require(again.repository.kind == id.repository.kind && again.path == id.path);
  Require(again.repository.revision == id.repository.revision);
  Require(again.repository.name == id.repository.name);
  Require(id.repository.CacheName().find('/') == std::string::npos);
}

}  // namespace
}  // namespace ckptfs::hub

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ckptfs::Try([&] { ckptfs::hub::CheckListing(text, ""); });
  ckptfs::Try([&] { ckptfs::hub::CheckListing(text, "d/"); });
  ckptfs::hub::CheckNextPage(text);
  ckptfs::Try([&] { ckptfs::hub::CheckUri(text); });
  return 0;
}
