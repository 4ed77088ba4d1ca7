// Settings of the Hugging Face Hub, in the environment variables of its own client.

#pragma once

#include <functional>
#include <string>

#include "parser/io/source_options.h"
#include "parser/source/http/url.h"
#include "parser/source/http/web_access.h"

namespace ckptfs::hub {

// Returns the value of an environment variable; empty if it is not set.
using Environment = std::function<std::string(const char* name)>;

// Returns the server: HF_ENDPOINT, or else huggingface.co. Its path does not end with '/' unless it
// is "/". Throws Error(EINVAL) if it is not a URL, or has a user or a query.
http::Url FindEndpoint(const Environment& environment);

// Returns the token of -o token_file, else of HF_TOKEN, else of a file: HF_TOKEN_PATH, or "token"
// in HF_HOME, in $XDG_CACHE_HOME/huggingface or in ~/.cache/huggingface. The last two are not used
// if HF_HUB_DISABLE_IMPLICIT_TOKEN is set. The value is empty if there is no token, or, with a
// warning, if requests for `endpoint` are neither encrypted nor stay on this machine. Throws Error
// if a token is malformed, a file cannot be read, or the token of the option would be sent in the
// clear.
http::Token FindToken(const Environment& environment, const http::Url& endpoint,
                      const SourceOptions& options);

// Returns the directory of the local cache, an absolute path: HF_HUB_CACHE, or "hub" in HF_HOME, in
// $XDG_CACHE_HOME/huggingface or in ~/.cache/huggingface. Empty if there is no home directory.
std::string FindCache(const Environment& environment);

// Whether only the local cache may be used: HF_HUB_OFFLINE.
bool IsOffline(const Environment& environment);

}  // namespace ckptfs::hub
