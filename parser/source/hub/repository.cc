#include "parser/source/hub/repository.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/codec/json_document.h"
#include "parser/io/simple_sources.h"
#include "parser/source/http/object.h"
#include "parser/source/hub/file_access.h"

namespace ckptfs::hub {
namespace {

// A page has some 300 KiB.
constexpr size_t kLargestBody = size_t{8} << 20U;

std::string ParseCommit(std::string body) {
  const auto source = std::make_shared<MemorySource>(std::move(body));
  Budget budget = Budget::ForFile(source->size());
  const auto document =
      json::Document::Of({.source = source, .offset = 0, .length = source->size()}, budget);
  const auto sha = document.root().Find("sha");
  if (!sha || !sha->is_text() || !IsCommit(sha->text())) {
    Fail(EBADMSG, "malformed response of the hub: no commit");
  }
  return std::string(sha->text());
}

}  // namespace

Repository::Repository(RepositoryId id, const Environment& environment,
                       const SourceOptions& options)
    : id_(std::move(id)),
      options_(options),
      endpoint_(FindEndpoint(environment)),
      client_(std::make_shared<http::Client>(
          http::Client::Options{.ca_file = options.ca_file, .user_agent = options.user_agent})),
      authorization_(std::make_shared<http::Authorization>(
          endpoint_, FindToken(environment, endpoint_, options))),
      commit_(IsCommit(id_.revision) ? id_.revision : ResolveRevision()),
      blobs_(FindCache(environment), id_, options.links) {}

http::Url Repository::UrlOf(std::string_view path) const {
  std::string base = endpoint_.text;
  if (base.ends_with('/')) base.pop_back();
  return http::ParseUrl(fmt::format("{}{}", base, path));
}

bool Repository::IsOnHub(const std::string& url) const {
  try {
    return http::ParseUrl(url).Origin() == endpoint_.Origin();
  } catch (const Error&) {
    return false;  // A malformed redirect, which WebAccess reports.
  }
}

http::Response Repository::Get(const http::Url& url) const {
  http::WebAccess access(url, authorization_);
  while (true) {
    http::PreparedRequest prepared;
    const auto prepare = [&] {
      prepared = access.Prepare({"Accept: application/json"});
      prepared.request.largest_body = kLargestBody;
      return prepared.request;
    };
    http::Response response = http::PerformWithRetries(*client_, prepare, options_);
    if (response.status == http::kOk) {
      if (response.body.size() < kLargestBody) return response;
      Fail(EFBIG, "response of the hub too large: more than {} bytes", kLargestBody);
    }
    if (http::IsRedirect(response.status) && access.Recover(prepared, response)) continue;
    constexpr int kUnauthorized = 401;
    if (response.status != kUnauthorized || !authorization_->Renew()) FailFor(response);
  }
}

std::string Repository::ResolveRevision() const {
  // "expand" leaves out the rest, which may be megabytes.
  return ParseCommit(Get(UrlOf(fmt::format("{}/revision/{}?expand=sha", id_.ApiPath(),
                                           PercentEncode(id_.revision_or_main()))))
                         .body);
}

Listing Repository::List(std::string_view folder) const {
  const std::string_view path = folder.substr(0, folder.empty() ? 0 : folder.size() - 1);
  const http::Url first = UrlOf(fmt::format("{}/tree/{}{}{}?recursive=true", id_.ApiPath(), commit_,
                                            path.empty() ? "" : "/", PercentEncode(path)));
  return hub::List(folder, first, [this](const http::Url& url) { return Get(url); });
}

RemoteObjectPtr Repository::Open(const File& file, std::string name) const {
  files_.Add();
  http::Url url = UrlOf(
      fmt::format("{}/resolve/{}/{}", id_.PagePath(), commit_, PercentEncode(file.path, "/")));
  http::Listed listed{
      .version = {.size = file.size, .tag = "", .last_modified = ""}, .identity = "", .sha256 = {}};
  if (file.id.is_sha256()) listed.sha256 = file.id.bytes;
  // The same bytes in any revision and repository, but not on another server, which may lie.
  listed.identity = fmt::format("hf {} {} {}", endpoint_.Origin(), listed.sha256 ? "sha256" : "git",
                                file.id.Hex());
  RemoteObjectPtr remote = http::OpenListedObject(
      std::move(name), client_,
      std::make_shared<FileAccess>(shared_from_this(), std::move(url), authorization_, file),
      options_, std::move(listed));
  return blobs_.Find(file, std::move(remote));
}

void Repository::FailFor(const http::Response& response) const {
  const std::string_view code = response.Find("x-error-code");
  const std::string& origin = authorization_->origin();
  if (code == "GatedRepo") {
    std::string page = endpoint_.text;
    if (page.ends_with('/')) page.pop_back();
    Fail(EACCES, "access is restricted: accept the licence at {}{}{}", page, id_.PagePath(),
         origin.empty() ? ", and put a token into HF_TOKEN"
                        : fmt::format(" for the account of {}", origin));
  }
  if (code == "RevisionNotFound") {
    Fail(ENOENT, "no such revision {}", Quoted(id_.revision_or_main()));
  }
  if (code == "EntryNotFound") Fail(ENOENT, "no such file or folder");
  if (code == "RepoNotFound" || code == "RepositoryNotFound") {
    if (origin.empty()) {
      Fail(ENOENT, "no such repository; if it is private, put a token into HF_TOKEN");
    }
    Fail(ENOENT, "no such repository, or no permission with {}", origin);
  }
  if (code == "DisabledRepo") Fail(EACCES, "the hub has disabled this repository");
  switch (response.status) {
    case 401:
      if (!origin.empty()) Fail(EACCES, "authentication failed with {}", origin);
      Fail(EACCES, "authentication required: put a token into HF_TOKEN");
    case 403:
      Fail(EACCES, "permission denied{}{}", origin.empty() ? "" : " with ", origin);
    case 404:
    case 410:
      Fail(ENOENT, "no such repository, revision or file");
    case 407:
      Fail(EACCES, "{}", http::kProxyNeedsPassword);
    default:
      Fail(EREMOTEIO, "server returned status {}", response.status);
  }
}

}  // namespace ckptfs::hub
