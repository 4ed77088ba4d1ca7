// The key or the passphrase of an encrypted checkpoint: from the file in an option, else from the
// environment, else from a prompt. Never from the command line, which is visible to all users.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fs/options.h"
#include "parser/base/secret.h"

namespace ckptfs {

// Whether a prompt is possible: standard input is the controlling terminal, and this process is in
// its foreground.
bool HasTerminal();

// Writes `question` to the controlling terminal and reads a line with the echo turned off. Returns
// null if it is empty or without HasTerminal(). Restores the echo in any case, also after a signal.
// Blocks signals meanwhile: call it before other threads exist. Throws Error.
std::unique_ptr<SecretBytes> AskAtTerminal(std::string_view question);

// The secret of one mount. Belongs to one thread.
class Secrets {
 public:
  // Reads the file in `options`, which may be relative or a pipe, or takes CKPTFS_KEY or
  // CKPTFS_PASSPHRASE, which are always wiped from the environment. Throws Error: EINVAL if the
  // environment is invalid, else if the file cannot be read or is invalid.
  explicit Secrets(const Options& options);

  // Returns the secret, or null without one (see AskSecret). Prompts for a passphrase, once, if one
  // can decrypt the checkpoint. Throws Error.
  std::shared_ptr<const Secret> Get(bool takes_passphrase);

  // The name of the option whose secret was not used; empty if it was used.
  std::string UnneededOption() const { return is_needed_ ? "" : option_; }

 private:
  const std::string checkpoint_;  // Its name, redacted.
  std::string option_;            // That contained a file; may be empty.
  std::shared_ptr<const Secret> secret_;
  bool is_needed_ = false;
  bool has_asked_ = false;
};

}  // namespace ckptfs
