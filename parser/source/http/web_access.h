// Requests for a file on a web server: redirects and credentials.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/source/http/authorization.h"
#include "parser/source/http/object.h"
#include "parser/source/http/url.h"

namespace ckptfs::http {

// Follows redirects and remembers the last target. Targets may expire (signed URLs); when one is
// refused, the chain is followed again from the start.
class WebAccess final : public Access {
 public:
  WebAccess(Url start, std::shared_ptr<Authorization> authorization);

  PreparedRequest Prepare(const std::vector<std::string>& headers) override;
  bool Recover(const PreparedRequest& prepared, const Response& response) override;
  void Succeeded() override;

 private:
  void MoveTo(Url target) REQUIRES(mutex_);
  bool Follow(const Response& response) REQUIRES(mutex_);
  bool Restart() REQUIRES(mutex_);

  [[noreturn]] void ThrowError(const Response& response) const;

  const Url start_;
  const std::shared_ptr<Authorization> authorization_;

  Mutex mutex_;
  Url target_ GUARDED_BY(mutex_);               // Of the last redirect; at first `start_`.
  uint64_t generation_ GUARDED_BY(mutex_) = 0;  // Number of changes of `target_`.
  int redirects_ GUARDED_BY(mutex_) = 0;        // From the start to the target.
  int restarts_ GUARDED_BY(mutex_) = 0;         // In a row.
};

}  // namespace ckptfs::http
