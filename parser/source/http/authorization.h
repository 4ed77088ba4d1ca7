// By whose authority a web server is asked.
//
// What counts is what is said for this server: user and password in its URL; then a token in a file
// that the user names; then the entry of the host in a netrc file; then the token in the variable
// CKPTFS_HTTP_TOKEN; and for huggingface.co that in HF_TOKEN.
//
// It goes to the scheme, host and port of the URL alone, and to nobody that a redirect leads to. A
// password goes over the wire as the user has written the URL, as with curl and wget. A token opens
// more than one file, and is for no server in particular: it goes over https, or to this machine.
// Neither goes through a proxy in the clear: over http a request with one takes no proxy.

#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "parser/io/source_options.h"
#include "parser/source/http/url.h"

namespace ckptfs::http {

// Thread-safe.
class Authorization {
 public:
  // For the server of `url`. Throws Error if it cannot be as the user said.
  Authorization(const Url& url, const SourceOptions& options);

  // Returns the header to send with a request for `url`; empty if there is none for it.
  std::string HeaderFor(const Url& url) const;

  // Looks whether there is another token now, and returns whether there is.
  bool Renew();

  // What is sent, for messages: "the token in /etc/token"; empty if there is nothing.
  const std::string& what() const { return what_; }

 private:
  void SetToken(std::string_view token, std::string what);

  std::string origin_;
  std::string what_;
  std::string token_file_;  // Empty if that is not where it is from.

  mutable std::mutex mutex_;
  std::string value_;  // Of the header.
};

}  // namespace ckptfs::http
