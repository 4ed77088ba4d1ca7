#include "parser/source/hub/repository.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/codec/json_document.h"
#include "parser/io/simple_sources.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/object.h"
#include "parser/source/http/web_access.h"
#include "parser/source/hub/listing.h"

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

// Returns the text of an entity tag. The hub's are strong, but a proxy that compresses makes them
// weak.
std::string_view TextOf(std::string_view tag) {
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  return http::IsStrongTag(tag) ? tag.substr(1, tag.size() - 2) : tag;
}

// Requests for one file of a repository. Thread-safe.
//
// The hub serves small files itself. For a large one it redirects to a signed link on another
// server, which expires after about an hour, and must not get the token. The redirect contains the
// identity of the file, which is compared with the listing: the ETag of that server is its own.
class FileAccess final : public http::Access {
 public:
  FileAccess(std::shared_ptr<const Repository> repository, http::Url url,
             std::shared_ptr<http::Authorization> authorization, const File& file);

  http::PreparedRequest Prepare(const std::vector<std::string>& headers) override {
    return web_.Prepare(headers);
  }
  // Throws Error(ESTALE), too, if a redirect belongs to another file than that of the listing.
  bool Recover(const http::PreparedRequest& prepared, const http::Response& response) override;
  void ValidateVersion(const http::PreparedRequest& prepared, const http::Response& response,
                       const http::Version& version) const override;
  void Succeeded() override { web_.Succeeded(); }

 private:
  // Throws Error(ESTALE) if `response` of the hub belongs to another commit or file. If it has no
  // tag, that is an error only if `requires_tag`.
  void Validate(const http::Response& response, bool requires_tag) const;

  const std::shared_ptr<const Repository> repository_;
  const std::shared_ptr<http::Authorization> authorization_;
  const uint64_t size_;
  const std::string tag_;  // In hexadecimal digits.
  http::WebAccess web_;
};

FileAccess::FileAccess(std::shared_ptr<const Repository> repository, http::Url url,
                       std::shared_ptr<http::Authorization> authorization, const File& file)
    : repository_(std::move(repository)),
      authorization_(authorization),
      size_(file.size),
      tag_(file.id.Hex()),
      web_(std::move(url), std::move(authorization)) {}

bool FileAccess::Recover(const http::PreparedRequest& prepared, const http::Response& response) {
  if (!repository_->IsOnHub(prepared.request.url)) return web_.Recover(prepared, response);
  if (!http::IsRedirect(response.status)) {
    constexpr int kUnauthorized = 401;
    if (response.status == kUnauthorized && authorization_->Renew()) return true;
    repository_->FailFor(response);
  }
  // A repository that was renamed is on the same server, whose next response has a tag.
  Validate(response, !response.location.empty() && !repository_->IsOnHub(response.location));
  return web_.Recover(prepared, response);
}

void FileAccess::ValidateVersion(const http::PreparedRequest& prepared,
                                 const http::Response& response,
                                 const http::Version& /*version*/) const {
  if (repository_->IsOnHub(prepared.request.url)) Validate(response, true);
}

void FileAccess::Validate(const http::Response& response, bool requires_tag) const {
  const std::string_view commit = response.Find("x-repo-commit");
  if (!commit.empty() && commit != repository_->commit()) {
    Fail(ESTALE, "file of another commit (found {}, expected {})", Quoted(commit),
         repository_->commit());
  }
  std::string_view tag = response.Find("x-linked-etag");
  if (tag.empty()) tag = response.Find("etag");
  if ((requires_tag || !tag.empty()) && TextOf(tag) != tag_) {
    Fail(ESTALE, "file differs from the listing (found ETag {}, expected {})", Quoted(tag), tag_);
  }
  const std::string_view size = response.Find("x-linked-size");
  if (!size.empty() && http::ParseLength(size) != size_) {
    Fail(ESTALE, "file differs from the listing (found {} bytes, expected {})", Quoted(size),
         size_);
  }
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
