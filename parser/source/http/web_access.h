// Requests for a file on a web server: credentials and redirects.
//
// The first of these credentials that exists is used: user and password in the URL; the token in
// the file of -o token_file; the entry of the host in a netrc file; the token in CKPTFS_HTTP_TOKEN;
// for huggingface.co the token in HF_TOKEN.
//
// Credentials are sent to the scheme, host and port of the URL only, never to the target of a
// redirect. A password is sent over the scheme of the URL, as curl and wget do. A token, which is
// for more than one file, is sent over https or to this machine only. A request over http that
// contains either is not sent through a proxy.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/io/source_options.h"
#include "parser/source/http/object.h"
#include "parser/source/http/url.h"

namespace ckptfs::http {

// A bearer token.
struct Token {
  std::string value;   // Empty: none.
  std::string origin;  // For messages: "the token in HF_TOKEN".
  std::string file;    // That it is read from again when it is refused; may be empty.
};

// Thread-safe.
class Authorization {
 public:
  // Sends `token` to the server of `url`, whose requests cannot be read on the way.
  Authorization(const Url& url, Token token);

  // Finds the credentials for the server of `url`. Throws Error if the file of an option cannot be
  // used.
  Authorization(const Url& url, const SourceOptions& options);

  // Returns the header for a request for `url`; empty if there is none.
  std::string HeaderFor(const Url& url) const;

  // Reads the token file again. Returns whether it contains another token.
  bool Renew();

  // Where the credentials are from, for messages: "the token in /etc/token"; empty if there are
  // none.
  const std::string& origin() const { return origin_; }

 private:
  void SetToken(std::string_view token, std::string origin);

  const std::string server_;  // Url::Origin.
  std::string origin_;
  std::string token_file_;  // Empty if the credentials are from elsewhere.

  mutable Mutex mutex_;
  std::string value_ GUARDED_BY(mutex_);  // Of the header.
};

// The entry of a host in a netrc file.
struct Login {
  std::string user;
  std::string password;
};

// Returns the first entry for `host`, or else the default one, of `text`, the content of a netrc
// file: words separated by blanks, "machine HOST login USER password PASSWORD", or "default" in
// place of the first two. A word may be in double quotes, with backslashes as escapes. "macdef"
// defines a macro up to the next empty line. Malformed text is ignored.
std::optional<Login> FindLogin(std::string_view text, std::string_view host);

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

  [[noreturn]] void ThrowError(const PreparedRequest& prepared, const Response& response) const;

  const Url start_;
  const std::shared_ptr<Authorization> authorization_;

  Mutex mutex_;
  Url target_ GUARDED_BY(mutex_);               // Of the last redirect; at first `start_`.
  uint64_t generation_ GUARDED_BY(mutex_) = 0;  // Number of changes of `target_`.
  int redirects_ GUARDED_BY(mutex_) = 0;        // From the start to the target.
  int restarts_ GUARDED_BY(mutex_) = 0;         // In a row.
};

}  // namespace ckptfs::http
