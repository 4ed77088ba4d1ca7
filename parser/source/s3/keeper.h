// Credentials that last as long as the mount.
//
// Temporary credentials end after an hour or so, and the mount stays. They are renewed five minutes
// before, by the thread that happens to need them then; the others go on with the old ones, and if
// the renewal fails, all of them do, for as long as these are good.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

// Thread-safe.
class CredentialsKeeper {
 public:
  using Find = std::function<CredentialsPtr()>;
  using Now = std::function<int64_t()>;  // Seconds since the epoch.

  // `find` is called by one thread at a time.
  CredentialsKeeper(Find find, Now now) : find_(std::move(find)), now_(std::move(now)) {}

  // The credentials that are good now; null if there have never been any. Throws what `find`
  // throws, or Error(EACCES) if it finds none any more, unless older ones are still good.
  CredentialsPtr Get();

  // Says that a server refused a request that was signed with `access_key`. Returns whether there
  // are other credentials now, which may fare better; for that it looks once in half a minute.
  // Throws as Get does.
  bool Renew(const std::string& access_key);

 private:
  bool IsGood(const Credentials& credentials) const;
  bool IsDue(const Credentials& credentials) const;
  void FindAgain(std::unique_lock<std::mutex>& lock);

  const Find find_;
  const Now now_;

  std::mutex mutex_;  // Guards all below. Not held while `find_` runs.
  std::condition_variable found_again_;
  bool is_finding_ = false;
  bool is_found_ = false;
  CredentialsPtr current_;
  int64_t found_at_ = 0;               // When `find_` ended last, well or not.
  std::optional<int64_t> renewed_at_;  // When it was called last because of a refusal.
};

}  // namespace ckptfs::s3
