// The commands of ckpt and their options.

#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {

// A parsed command line.
struct ParsedCommand {
  std::vector<std::string> options;       // Lists of -o.
  std::function<int(const Opener&)> run;  // Returns the exit status. Throws Error.
  bool is_diff = false;                   // Failures end with the exit status of diff(1).
};

// Adds all commands to `app`, which fills in `parsed` when it parses the command line.
void AddCommands(CLI::App& app, ParsedCommand& parsed);

}  // namespace ckptfs::ckpt
