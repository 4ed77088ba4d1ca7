// ckpt: looks into checkpoints without a mount.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fs/guard.h"
#include "fs/log.h"
#include "fs/options.h"
#include "fs/process.h"
#include "parser/base/error.h"
#include "tools/ckpt/cat.h"
#include "tools/ckpt/diff.h"
#include "tools/ckpt/info.h"
#include "tools/ckpt/ls.h"
#include "tools/ckpt/model.h"
#include "tools/ckpt/show.h"
#include "tools/ckpt/stat.h"
#include "tools/ckpt/verify.h"

namespace ckptfs::ckpt {
namespace {

using Open = std::function<std::unique_ptr<Model>(const std::string& source)>;

// The command line.
struct Arguments {
  std::string source;
  std::vector<std::string> options;  // Lists of -o.
  LsOptions ls;
  bool is_json = false;
  bool is_csv = false;
  std::string key;
  bool is_npy = false;
  StatOptions stat;
  std::string second;  // The other source of diff.
  DiffOptions diff;
  bool is_diff = false;
  WrongHashes wrong_hashes;
  std::shared_ptr<const Verification> verification;  // Of the source, for verify.
  // Returns the exit status; `open` opens another source.
  std::function<int(const Model& model, const Open& open)> command;  // Returns the exit status.
};

OutputFormat FormatOf(const Arguments& arguments) {
  if (arguments.is_json) return OutputFormat::kJson;
  return arguments.is_csv ? OutputFormat::kCsv : OutputFormat::kText;
}

CLI::App* AddCommand(CLI::App& app, Arguments& arguments, const std::string& name,
                     const std::string& help) {
  CLI::App* const command = app.add_subcommand(name, help);
  command->add_option("SOURCE", arguments.source, "a file, a folder or a URI")->required();
  // One value each time: operands may follow.
  command->add_option("-o", arguments.options, "options of sources, as those of ckptfs -o")
      ->type_name("OPTION,...")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return command;
}

void AddCommands(CLI::App& app, Arguments& arguments) {
  CLI::App* const ls = AddCommand(app, arguments, "ls", "list the tensors");
  ls->add_option("PATTERN", arguments.ls.pattern, "only keys that match, such as 'h.0.*'");
  ls->add_flag("-l", arguments.ls.is_long, "also offset, member, stride and ties");
  ls->add_flag("--tree", arguments.ls.is_tree, "sums by module");
  ls->add_flag("-S,--by-size", arguments.ls.by_size, "the largest first");
  CLI::Option* const json = ls->add_flag("--json", arguments.is_json, "print JSON");
  ls->add_flag("--csv", arguments.is_csv, "print CSV")->excludes(json);
  ls->callback([&arguments] {
    arguments.command = [&arguments](const Model& model, const Open& /*open*/) {
      arguments.ls.format = FormatOf(arguments);
      List(model, arguments.ls);
      return 0;
    };
  });

  CLI::App* const info = AddCommand(app, arguments, "info", "describe the checkpoint");
  info->add_flag("--json", arguments.is_json, "print JSON");
  info->callback([&arguments] {
    arguments.command = [&arguments](const Model& model, const Open& /*open*/) {
      Describe(model, FormatOf(arguments));
      return 0;
    };
  });

  CLI::App* const cat = AddCommand(app, arguments, "cat", "write the bytes of a tensor");
  cat->add_option("KEY", arguments.key, "its key, and maybe a slice: 'h.0.weight[:10]'")
      ->required();
  cat->add_flag("--npy", arguments.is_npy, "as an .npy file");
  cat->callback([&arguments] {
    arguments.command = [&arguments](const Model& model, const Open& /*open*/) {
      Dump(model, arguments.key, arguments.is_npy);
      return 0;
    };
  });

  CLI::App* const show = AddCommand(app, arguments, "show", "print the values of a tensor");
  show->add_option("KEY", arguments.key, "as of cat")->required();
  show->callback([&arguments] {
    arguments.command = [&arguments](const Model& model, const Open& /*open*/) {
      Show(model, arguments.key);
      return 0;
    };
  });

  CLI::App* const diff = AddCommand(app, arguments, "diff", "compare two checkpoints");
  diff->add_option("SECOND", arguments.second, "the other checkpoint")->required();
  diff->add_option("PATTERN", arguments.diff.pattern, "as of ls");
  diff->add_option("--tolerance", arguments.diff.tolerance, "differences that are ignored")
      ->type_name("NUMBER");
  diff->add_option("--map", arguments.diff.map, "rename keys: 's/^model\\.//'")
      ->type_name("s/EXPRESSION/TEXT/");
  CLI::Option* const diff_json = diff->add_flag("--json", arguments.is_json, "print JSON");
  diff->add_flag("--csv", arguments.is_csv, "print CSV")->excludes(diff_json);
  diff->callback([&arguments] {
    arguments.is_diff = true;
    arguments.command = [&arguments](const Model& model, const Open& open) {
      arguments.diff.format = FormatOf(arguments);
      return Diff(model, *open(arguments.second), arguments.diff);
    };
  });

  CLI::App* const verify = AddCommand(app, arguments, "verify", "check hashes of the tensors");
  verify->add_flag("--json", arguments.is_json, "print JSON");
  verify->callback([&arguments] {
    arguments.verification = arguments.wrong_hashes.MakeVerification();
    arguments.command = [&arguments](const Model& model, const Open& /*open*/) {
      return VerifyHashes(model, arguments.wrong_hashes, FormatOf(arguments));
    };
  });

  CLI::App* const stat = AddCommand(app, arguments, "stat", "print figures of the tensors");
  stat->add_option("PATTERN", arguments.stat.pattern, "as of ls");
  stat->add_flag("--check", arguments.stat.is_check, "exit with 1 if there is NaN or infinity");
  CLI::Option* const stat_json = stat->add_flag("--json", arguments.is_json, "print JSON");
  stat->add_flag("--csv", arguments.is_csv, "print CSV")->excludes(stat_json);
  stat->callback([&arguments] {
    arguments.command = [&arguments](const Model& model, const Open& /*open*/) {
      arguments.stat.format = FormatOf(arguments);
      return Measure(model, arguments.stat);
    };
  });
}

int Run(int argc, const char* const* argv, Arguments& arguments, Log& log, Step& step) {
  CLI::App app("Looks into checkpoints without a mount.", "ckpt");
  app.set_version_flag("-V,--version", "ckpt " CKPTFS_VERSION);
  app.require_subcommand(1);
  AddCommands(app, arguments);
  step = Step::kCommandLine;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // Help, or the version.
    Fail(EINVAL, "{}; see ckpt --help", e.what());
  }
  Options options;
  for (const std::string& list : arguments.options) SetSourceOptions(options, list);
  options.sources.user_agent = "ckptfs/" CKPTFS_VERSION;
  step = Step::kSecret;
  const Model model(arguments.source, options, log, step, arguments.verification);
  step = Step::kCommand;
  return arguments.command(model, [&](const std::string& source) {
    auto other = std::make_unique<Model>(source, options, log, step);
    step = Step::kCommand;
    return other;
  });
}

int Main(int argc, const char* const* argv) {
  Log log("ckpt");
  Step step = Step::kStart;
  Arguments arguments;
  std::optional<int> status;
  const int failure = Guard(log, step, false, [&] {
    PrepareProcess();
    status = Run(argc, argv, arguments, log, step);
    return *status;
  });
  if (status) return *status;
  return arguments.is_diff ? 2 : failure;  // As diff(1), whatever is wrong.
}

}  // namespace
}  // namespace ckptfs::ckpt

int main(int argc, char** argv) { return ckptfs::ckpt::Main(argc, argv); }
