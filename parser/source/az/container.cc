#include "parser/source/az/container.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <pugixml.hpp>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/url.h"
#include "parser/source/s3/response.h"

namespace ckptfs::az {
namespace {

bool IsLowerOrDigit(char c) { return (c >= 'a' && c <= 'z') || IsDigit(c); }

// Returns the URL of the server, without '/' at its end.
std::string FindServer(const std::string& account, const s3::Environment& environment) {
  const std::string text = environment("AZURE_STORAGE_BLOB_ENDPOINT");
  if (text.empty()) return fmt::format("https://{}.blob.core.windows.net", account);
  try {
    std::string server = WithoutQuery(http::ParseUrl(text));
    while (server.ends_with('/')) server.pop_back();
    return server;
  } catch (const Error& e) {
    throw WithContext("AZURE_STORAGE_BLOB_ENDPOINT", e);
  }
}

http::Version VersionOf(const pugi::xml_node& properties) {
  const auto size = http::ParseLength(properties.child_value("Content-Length"));
  if (!size) return {};
  std::string tag = properties.child_value("Etag");
  // Headers have quotes.
  if (!tag.empty() && !tag.starts_with('"')) tag = fmt::format("\"{}\"", tag);
  return {.size = *size,
          .tag = std::move(tag),
          .last_modified = properties.child_value("Last-Modified")};
}

// A name with characters that XML cannot contain is encoded.
std::string NameOf(const pugi::xml_node& entry) {
  const pugi::xml_node name = entry.child("Name");
  std::string text = name.child_value();
  return std::string_view(name.attribute("Encoded").value()) == "true" ? PercentDecode(text) : text;
}

}  // namespace

std::string BlobId::Root() const { return fmt::format("az://{}/{}/", account, blob.bucket); }

BlobId ParseUri(const Location& uri) {
  BlobId id;
  id.account = uri.authority;
  std::string_view rest = std::string_view(uri.path).substr(uri.path.empty() ? 0 : 1);
  id.blob.bucket = rest.substr(0, rest.find('/'));
  rest.remove_prefix(std::min(id.blob.bucket.size() + 1, rest.size()));
  id.blob.key = rest;
  if (id.account.empty() || id.blob.bucket.empty()) {
    Fail(EINVAL, "missing container (expected az://account/container/path)");
  }
  // The account may be a user with a password, which no message may contain.
  if (!std::ranges::all_of(id.account, IsLowerOrDigit)) {
    Fail(EINVAL, "invalid account name (expected az://account/container/path)");
  }
  if (!std::ranges::all_of(id.blob.bucket,
                           [](char c) { return IsLowerOrDigit(c) || c == '-' || c == '$'; })) {
    Fail(EINVAL, "invalid container name {}", Quoted(id.blob.bucket));
  }
  return id;
}

s3::Page ParsePage(const std::string& xml) {
  pugi::xml_document document;
  const pugi::xml_parse_result result =
      document.load_buffer(xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata);
  const pugi::xml_node root = document.child("EnumerationResults");
  if (!result || !root) Fail(EBADMSG, "malformed listing: not in XML");
  s3::Page page;
  for (const pugi::xml_node& blob : root.child("Blobs").children("Blob")) {
    page.keys.push_back(NameOf(blob));
    page.versions.push_back(VersionOf(blob.child("Properties")));
  }
  for (const pugi::xml_node& prefix : root.child("Blobs").children("BlobPrefix")) {
    page.prefixes.push_back(NameOf(prefix));
  }
  page.next = root.child_value("NextMarker");
  return page;
}

Container::Container(const BlobId& id, const s3::Environment& environment,
                     const SourceOptions& options)
    : s3::Bucket(options, options.ca_file),
      name_(id.blob.bucket),
      server_(FindServer(id.account, environment)),
      account_{.name = id.account, .key = nullptr} {
  const http::Url url = http::ParseUrl(server_);
  path_ = url.path == "/" ? "" : url.path;
  const std::string owner = environment("AZURE_STORAGE_ACCOUNT");
  if (options.s3_anonymous || (!owner.empty() && owner != id.account)) return;
  if (const std::string key = environment("AZURE_STORAGE_KEY"); !key.empty()) {
    account_.key = ParseKey(key, "AZURE_STORAGE_KEY");
    return;
  }
  const std::string token = environment("AZURE_STORAGE_SAS_TOKEN");
  shared_access_signature_ = Trim(token.starts_with('?') ? token.substr(1) : token);
  if (shared_access_signature_.empty()) return;
  if (!std::ranges::all_of(shared_access_signature_, [](char c) { return c > ' ' && c < 0x7f; }) ||
      shared_access_signature_.find_first_of("?#") != std::string::npos) {
    Fail(EACCES, "AZURE_STORAGE_SAS_TOKEN is not a query");
  }
  if (!url.IsPrivate()) {
    Fail(EINVAL,
         "insecure AZURE_STORAGE_BLOB_ENDPOINT: a SAS token is sent over https or to this "
         "machine, not over http");
  }
}

http::PreparedRequest Container::Prepare(std::string_view key, const s3::Query& query,
                                         const std::vector<std::string>& headers) {
  constexpr size_t kLargestBody = size_t{8} << 20U;  // Of a listing.
  const std::string path = fmt::format("/{}{}{}", PercentEncode(name_, "$"), key.empty() ? "" : "/",
                                       PercentEncode(key, "/"));
  std::string encoded = s3::CanonicalQuery(query);
  http::PreparedRequest prepared;
  if (!shared_access_signature_.empty()) {
    prepared.object_url = fmt::format("{}{}?{}", server_, path, encoded);
    encoded += (encoded.empty() ? "" : "&") + shared_access_signature_;
  }
  http::Request& request = prepared.request;
  request.url = fmt::format("{}{}{}{}", server_, path, encoded.empty() ? "" : "?", encoded);
  request.largest_body = kLargestBody;
  request.headers = headers;
  request.headers.push_back("x-ms-date: " + FormatHttpDate(std::time(nullptr)));
  request.headers.emplace_back("x-ms-version: 2021-08-06");
  request.has_secret = !shared_access_signature_.empty();
  if (account_.key) {
    request.headers.push_back(
        Sign({.path = path_ + path, .query = query, .headers = request.headers}, account_));
  }
  return prepared;
}

bool Container::Recover(const http::PreparedRequest& /*prepared*/, const http::Response& response) {
  if (http::IsRedirect(response.status)) {
    Fail(EREMOTEIO, "unexpected redirect: status {}", response.status);
  }
  const s3::ErrorResponse error = s3::ParseErrorResponse(response.body);
  if (error.code == "ContainerNotFound") Fail(ENOENT, "no such container");
  s3::FailFor(response, error,
              account_.key                        ? "AZURE_STORAGE_KEY"
              : !shared_access_signature_.empty() ? "AZURE_STORAGE_SAS_TOKEN"
                                                  : "");
}

s3::Listing Container::List(std::string_view prefix) {
  return s3::CollectPages(prefix, [&](const std::string& marker) {
    s3::Query query = {{"restype", "container"},
                       {"comp", "list"},
                       {"delimiter", "/"},
                       {"maxresults", "1000"},
                       {"prefix", std::string(prefix)}};
    if (!marker.empty()) query.emplace_back("marker", marker);
    return ParsePage(Fetch(query));
  });
}

}  // namespace ckptfs::az
