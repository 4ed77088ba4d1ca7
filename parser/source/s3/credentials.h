// AWS credentials, a cache that renews them, and where they are found: as by the AWS tools, in the
// environment, profiles, roles, and the machine.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/mutex.h"
#include "parser/base/secret.h"
#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/s3/config.h"

namespace ckptfs::s3 {

// Immutable after construction.
struct Credentials {
  std::string access_key;  // Not secret, but it identifies the user.

  // "AWS4" and the secret key, as the signature uses it.
  std::shared_ptr<const SecretBytes> signing_secret;

  std::string session_token;  // Empty if they are not temporary. Sent in each request.

  // When they expire, in seconds since the epoch; nothing if that is unknown, or never.
  std::optional<int64_t> expiry;

  std::string origin;    // For messages: "the environment".
  std::string endpoint;  // URL of the server that they are valid for; empty if it is unknown.
};

using CredentialsPtr = std::shared_ptr<const Credentials>;

// Stores the secret in locked memory. Throws Error(EACCES) if a value is empty or contains a
// character that is invalid in a header.
CredentialsPtr MakeCredentials(std::string access_key, std::string_view secret_key,
                               std::string session_token, std::string origin,
                               std::optional<int64_t> expiry = std::nullopt);

// Whether a server cannot distinguish `a` and `b`.
bool AreSame(const Credentials& a, const Credentials& b);

// Renews temporary credentials, which expire after an hour or so, during a mount. One of the
// threads that need them renews them five minutes before they expire. The other threads use the old
// ones meanwhile, as do all threads after a failed renewal, until these expire. Thread-safe.
class CredentialsCache {
 public:
  using Find = std::function<CredentialsPtr()>;
  using Now = std::function<int64_t()>;  // Seconds since the epoch.

  // `find` is called by one thread at a time.
  CredentialsCache(Find find, Now now) : find_(std::move(find)), now_(std::move(now)) {}

  // Returns valid credentials; null if `find` has never found any. Throws the errors of `find`, or
  // Error(EACCES) if it finds none any more, unless the old ones are still valid.
  CredentialsPtr Get();

  // Handles the refusal of a request that was signed with `access_key`. Returns whether there are
  // other credentials now; looks for them once in 30 s. Throws as Get does.
  bool Renew(const std::string& access_key);

 private:
  bool IsValid(const Credentials& credentials) const;
  bool IsDue(const Credentials& credentials) const REQUIRES(mutex_);
  void FindAgain() REQUIRES(mutex_);

  const Find find_;
  const Now now_;

  Mutex mutex_;  // Not held while `find_` runs.
  std::condition_variable found_again_;
  bool is_finding_ GUARDED_BY(mutex_) = false;
  bool is_found_ GUARDED_BY(mutex_) = false;
  CredentialsPtr current_ GUARDED_BY(mutex_);
  int64_t found_at_ GUARDED_BY(mutex_) = 0;               // When `find_` returned or threw last.
  std::optional<int64_t> renewed_at_ GUARDED_BY(mutex_);  // When Renew called it last.
};

// The dependencies of a provider of credentials. Outlives it.
struct CredentialContext {
  const Config& config;
  http::Client& client;
  const SourceOptions& options;  // `timeout` limits each provider.
};

// Each function returns null if its provider has no credentials. Throws Error if it has some that
// cannot be used: EACCES, or the error of the request for them.

// Tries all providers in the order of the AWS tools, then that of tensorizer. Null: anonymous.
CredentialsPtr FindCredentials(const CredentialContext& context);

}  // namespace ckptfs::s3
