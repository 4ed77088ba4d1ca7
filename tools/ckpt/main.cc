// ckpt: looks into checkpoints without a mount.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <optional>
#include <string>

#include "fs/guard.h"
#include "fs/log.h"
#include "fs/options.h"
#include "fs/process.h"
#include "parser/base/error.h"
#include "tools/ckpt/command_line.h"
#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {
namespace {

int Run(int argc, const char* const* argv, ParsedCommand& parsed, Log& log, Step& step) {
  CLI::App app("Looks into checkpoints without a mount.", "ckpt");
  app.set_version_flag("-V,--version", "ckpt " CKPTFS_VERSION);
  app.require_subcommand(1);
  AddCommands(app, parsed);
  step = Step::kCommandLine;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // Help, or the version.
    Fail(EINVAL, "{}; see ckpt --help", e.what());
  }
  Options options;
  for (const std::string& list : parsed.options) SetSourceOptions(options, list);
  options.sources.user_agent = "ckptfs/" CKPTFS_VERSION;
  step = Step::kCommand;
  return parsed.run(Opener(options, log, step));
}

int Main(int argc, const char* const* argv) {
  Log log("ckpt");
  Step step = Step::kStart;
  ParsedCommand parsed;
  std::optional<int> status;
  const int failure = Guard(log, step, false, [&] {
    PrepareProcess();
    status = Run(argc, argv, parsed, log, step);
    return *status;
  });
  if (status) return *status;
  return parsed.is_diff ? 2 : failure;  // As diff(1), whatever is wrong.
}

}  // namespace
}  // namespace ckptfs::ckpt

int main(int argc, char** argv) { return ckptfs::ckpt::Main(argc, argv); }
