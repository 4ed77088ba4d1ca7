// Requests for one file of a repository.
//
// The hub serves small files itself. For a large one it redirects to a signed link on another
// server, which expires after about an hour, and must not get the token. The redirect contains the
// identity of the file, which is compared with the listing: the ETag of that server is its own.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parser/source/http/object.h"
#include "parser/source/http/web_access.h"
#include "parser/source/hub/listing.h"

namespace ckptfs::hub {

class Repository;

// Thread-safe.
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

}  // namespace ckptfs::hub
