#include "parser/source/hub/file_access.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/http/headers.h"
#include "parser/source/hub/repository.h"

namespace ckptfs::hub {
namespace {

// Returns the text of an entity tag. The hub's are strong, but a proxy that compresses makes them
// weak.
std::string_view TextOf(std::string_view tag) {
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  return http::IsStrongTag(tag) ? tag.substr(1, tag.size() - 2) : tag;
}

}  // namespace

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

}  // namespace ckptfs::hub
