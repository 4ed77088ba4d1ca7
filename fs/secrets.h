// Where the key or the passphrase of an encrypted checkpoint comes from: a file that an option
// names, else the environment, else the user at the terminal. Never the command line, which
// everybody can see.

#pragma once

#include <memory>
#include <string>

#include "fs/options.h"
#include "parser/base/secret.h"

namespace ckptfs {

// The secret of one mount. Belongs to one thread.
class Secrets {
 public:
  // Reads the file that `options` names, which may be relative or a pipe, or takes CKPTFS_KEY or
  // CKPTFS_PASSPHRASE, which are wiped out of the environment in any case. Throws Error: EINVAL if
  // the environment is wrong, else that the file is not there or is not what it should be.
  explicit Secrets(const Options& options);

  // Returns the secret, or null if there is none; asks the user for a passphrase, once, if that
  // helps and there is no other. As AskSecret says. Throws Error.
  std::shared_ptr<const Secret> Get(bool takes_passphrase);

  // The name of the option that gave a secret which nobody has asked for; empty if there is none.
  std::string UnneededOption() const { return is_needed_ ? "" : option_; }

 private:
  const std::string checkpoint_;  // Its name, redacted.
  std::string option_;            // Which named a file; empty if none did.
  std::shared_ptr<const Secret> secret_;
  bool is_needed_ = false;
  bool has_asked_ = false;
};

}  // namespace ckptfs
