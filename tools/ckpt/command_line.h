// The commands of ckpt and their options.

#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {

// The command that the command line has chosen.
struct Chosen {
  std::vector<std::string> options;       // Lists of -o.
  std::function<int(const Opener&)> run;  // Returns the exit status. Throws Error.
  bool is_diff = false;                   // Failures end with the exit status of diff(1).
};

// Adds all commands to `app`, which fills in `chosen` when it parses the command line.
void AddCommands(CLI::App& app, Chosen& chosen);

}  // namespace ckptfs::ckpt
