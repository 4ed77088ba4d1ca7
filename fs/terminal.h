// Asking the user for a passphrase.

#pragma once

#include <memory>
#include <string_view>

#include "parser/base/secret.h"

namespace ckptfs {

// Whether there is somebody to ask: standard input is a terminal, it is the one that controls us,
// and we are in its foreground.
bool HasTerminal();

// Writes `question` to the controlling terminal and reads a line there that is not shown. Returns
// nothing if it is empty or if there is no HasTerminal(). However this ends, and be it by a signal,
// the terminal shows again what is typed. Blocks signals meanwhile: to be called before there are
// threads. Throws Error.
std::unique_ptr<SecretBytes> AskAtTerminal(std::string_view question);

}  // namespace ckptfs
