// How a file on a web server is asked for.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parser/source/http/authorization.h"
#include "parser/source/http/object.h"
#include "parser/source/http/url.h"

namespace ckptfs::http {

// Follows redirects, and remembers where they led. What they led to may be for a while only: a
// "signed" URL, which expires. Once it is refused, the way is gone again from where it began.
class WebAccess final : public Access {
 public:
  WebAccess(Url start, std::shared_ptr<Authorization> authorization);

  Request Prepare(const std::vector<std::string>& headers) override;
  bool Recover(const Request& request, const Response& response) override;
  void Succeeded() override;

 private:
  // Both are called under the mutex.
  bool Follow(const Response& response);
  bool GoBack();

  [[noreturn]] void FailFor(const Response& response) const;

  const Url start_;
  const std::shared_ptr<Authorization> authorization_;

  std::mutex mutex_;
  Url place_;          // Where redirects have led.
  int redirects_ = 0;  // From the start to there.
  int returns_ = 0;    // To the start, in a row.
};

}  // namespace ckptfs::http
