#include "tools/ckpt/command_line.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "fs/options.h"
#include "parser/base/error.h"
#include "tools/ckpt/commands.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/verify.h"

namespace ckptfs::ckpt {
namespace {

// The operands and switches that commands share.
struct Arguments {
  std::string source;
  std::string key;
  bool is_json = false;
  bool is_csv = false;
  bool is_forced = false;

  OutputFormat format() const {
    if (is_json) return OutputFormat::kJson;
    return is_csv ? OutputFormat::kCsv : OutputFormat::kText;
  }

  Existing existing() const { return is_forced ? Existing::kReplace : Existing::kKeep; }
};

CLI::App* AddCommand(CLI::App& app, ParsedCommand& parsed, const char* name, const char* help) {
  CLI::App* const command = app.add_subcommand(name, help);
  // One value each time: operands may follow.
  command->add_option("-o", parsed.options, "options of sources, as those of ckptfs -o")
      ->type_name("OPTION,...")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return command;
}

void AddSource(CLI::App* command, std::string& source) {
  command->add_option("SOURCE", source, "a file, a folder or a URI")->required();
}

void AddPattern(CLI::App* command, std::string& pattern) {
  command->add_option("PATTERN", pattern, "only keys that match, such as 'h.0.*'");
}

void AddKey(CLI::App* command, std::string& key) {
  command->add_option("KEY", key, "a key, and maybe a slice: 'h.0.weight[:10]'")->required();
}

void AddMap(CLI::App* command, std::string& map) {
  command->add_option("--map", map, "rename keys: 's/^model\\.//'")
      ->type_name("s/EXPRESSION/TEXT/");
}

void AddJson(CLI::App* command, Arguments& arguments) {
  command->add_flag("--json", arguments.is_json, "print JSON");
}

void AddFormats(CLI::App* command, Arguments& arguments) {
  AddJson(command, arguments);
  command->add_flag("--csv", arguments.is_csv, "print CSV")->excludes("--json");
}

// Makes `run(open, arguments)` what `command` does.
template <typename T, typename Function>
void SetAction(CLI::App* command, ParsedCommand& parsed, std::shared_ptr<T> arguments,
               Function run) {
  command->callback([&parsed, arguments = std::move(arguments), run = std::move(run)] {
    parsed.run = [arguments, run](const Opener& open) { return run(open, *arguments); };
  });
}

void AddLs(CLI::App& app, ParsedCommand& parsed) {
  struct LsArguments : Arguments {
    LsOptions options;
  };
  const auto arguments = std::make_shared<LsArguments>();
  CLI::App* const command = AddCommand(app, parsed, "ls", "list the tensors");
  AddSource(command, arguments->source);
  AddPattern(command, arguments->options.pattern);
  command->add_flag("-l", arguments->options.is_long, "also offset, member, stride and ties");
  command->add_flag("--tree", arguments->options.is_tree, "sums by module");
  command->add_flag("-S,--by-size", arguments->options.by_size, "the largest first");
  AddFormats(command, *arguments);
  SetAction(command, parsed, arguments, [](const Opener& open, LsArguments& a) {
    a.options.format = a.format();
    List(*open(a.source, nullptr), a.options);
    return 0;
  });
}

void AddInfo(CLI::App& app, ParsedCommand& parsed) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command = AddCommand(app, parsed, "info", "describe the checkpoint");
  AddSource(command, arguments->source);
  AddJson(command, *arguments);
  SetAction(command, parsed, arguments, [](const Opener& open, const Arguments& a) {
    Describe(*open(a.source, nullptr), a.format());
    return 0;
  });
}

void AddCat(CLI::App& app, ParsedCommand& parsed) {
  struct CatArguments : Arguments {
    bool is_npy = false;
  };
  const auto arguments = std::make_shared<CatArguments>();
  CLI::App* const command = AddCommand(app, parsed, "cat", "write the bytes of a tensor");
  AddSource(command, arguments->source);
  AddKey(command, arguments->key);
  command->add_flag("--npy", arguments->is_npy, "as an .npy file");
  SetAction(command, parsed, arguments, [](const Opener& open, const CatArguments& a) {
    Dump(*open(a.source, nullptr), a.key, a.is_npy);
    return 0;
  });
}

void AddShow(CLI::App& app, ParsedCommand& parsed) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command = AddCommand(app, parsed, "show", "print the values of a tensor");
  AddSource(command, arguments->source);
  AddKey(command, arguments->key);
  SetAction(command, parsed, arguments, [](const Opener& open, const Arguments& a) {
    Show(*open(a.source, nullptr), a.key);
    return 0;
  });
}

void AddStat(CLI::App& app, ParsedCommand& parsed) {
  struct StatArguments : Arguments {
    StatOptions options;
  };
  const auto arguments = std::make_shared<StatArguments>();
  CLI::App* const command = AddCommand(app, parsed, "stat", "print figures of the tensors");
  AddSource(command, arguments->source);
  AddPattern(command, arguments->options.pattern);
  command->add_flag("--check", arguments->options.is_check,
                    "exit with 1 if there is NaN or infinity");
  AddFormats(command, *arguments);
  SetAction(command, parsed, arguments, [](const Opener& open, StatArguments& a) {
    a.options.format = a.format();
    return Measure(*open(a.source, nullptr), a.options);
  });
}

void AddDiff(CLI::App& app, ParsedCommand& parsed) {
  struct DiffArguments : Arguments {
    std::string second;
    DiffOptions options;
  };
  const auto arguments = std::make_shared<DiffArguments>();
  CLI::App* const command = AddCommand(app, parsed, "diff", "compare two checkpoints");
  AddSource(command, arguments->source);
  command->add_option("SECOND", arguments->second, "the other checkpoint")->required();
  AddPattern(command, arguments->options.pattern);
  command->add_option("--tolerance", arguments->options.tolerance, "differences that are ignored")
      ->type_name("NUMBER");
  AddMap(command, arguments->options.map);
  AddFormats(command, *arguments);
  SetAction(command, parsed, arguments, [&parsed](const Opener& open, DiffArguments& a) {
    parsed.is_diff = true;
    a.options.format = a.format();
    const auto first = open(a.source, nullptr);
    return Diff(*first, *open(a.second, nullptr), a.options);
  });
}

void AddConvert(CLI::App& app, ParsedCommand& parsed) {
  struct ConvertArguments : Arguments {
    ConvertOptions options;
  };
  const auto arguments = std::make_shared<ConvertArguments>();
  ConvertOptions& options = arguments->options;
  CLI::App* const command = AddCommand(app, parsed, "convert", "write another format");
  AddSource(command, arguments->source);
  command->add_option("OUT", options.output, "a file or folder that does not exist")->required();
  command
      ->add_option("--to", options.target,
                   "safetensors, npz, gguf, tensors (else OUT's suffix), npy or tensordict")
      ->type_name("FORMAT");
  command->add_option("--only", options.pattern, "only keys that match, such as 'h.0.*'")
      ->type_name("PATTERN");
  command
      ->add_option_function<std::string>(
          "--subtree",
          [&parsed](const std::string& keys) {
            parsed.options.push_back("subtree=" + EscapedOption(keys));
          },
          "only the dict of these keys, with slashes between")
      ->type_name("KEYS");
  AddMap(command, options.map);
  command
      ->add_option("--dtype", options.dtype,
                   "cast floats to bfloat16, float16, float32, float64; decode quantized types")
      ->type_name("TYPE");
  command->add_option("--shard", options.shard, "files of at most so many bytes, and an index")
      ->type_name("SIZE");
  command->add_flag("--verify", options.is_verified, "read the files again and compare them");
  command->add_flag("-f,--force", arguments->is_forced,
                    "replace a file or folder of an earlier conversion");
  SetAction(command, parsed, arguments, [](const Opener& open, ConvertArguments& a) {
    a.options.existing = a.existing();
    Convert(*open(a.source, nullptr), a.options);
    return 0;
  });
}

void AddVerify(CLI::App& app, ParsedCommand& parsed) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command = AddCommand(app, parsed, "verify", "check hashes of the tensors");
  AddSource(command, arguments->source);
  AddJson(command, *arguments);
  SetAction(command, parsed, arguments, [](const Opener& open, const Arguments& a) {
    WrongHashes wrong;
    return VerifyHashes(*open(a.source, wrong.MakeVerification()), wrong, a.format());
  });
}

void AddScan(CLI::App& app, ParsedCommand& parsed) {
  struct ScanArguments : Arguments {
    std::vector<std::string> sources;
    bool is_sarif = false;
  };
  const auto arguments = std::make_shared<ScanArguments>();
  CLI::App* const command = AddCommand(app, parsed, "scan", "find code that loading would execute");
  command->add_option("SOURCE", arguments->sources, "files, folders of files, or URIs")->required();
  AddJson(command, *arguments);
  command->add_flag("--sarif", arguments->is_sarif, "print SARIF")->excludes("--json");
  SetAction(command, parsed, arguments, [](const Opener& open, const ScanArguments& a) {
    return Scan(a.sources, open,
                a.is_sarif  ? ScanFormat::kSarif
                : a.is_json ? ScanFormat::kJson
                            : ScanFormat::kText);
  });
}

// Moves the file of -o, if there is one, from the lists of options to `output`: -o has both
// meanings for `report`.
void TakeOutput(std::vector<std::string>& lists, std::string& output) {
  for (auto list = lists.begin(); list != lists.end();) {
    if (IsOptionList(*list)) {
      ++list;
      continue;
    }
    if (!output.empty()) Fail(EINVAL, "two output files: {} and {}", Quoted(output), Quoted(*list));
    output = std::move(*list);
    list = lists.erase(list);
  }
}

void AddReport(CLI::App& app, ParsedCommand& parsed) {
  struct ReportArguments : Arguments {
    std::string output;
    bool has_no_values = false;
  };
  const auto arguments = std::make_shared<ReportArguments>();
  CLI::App* const command = AddCommand(app, parsed, "report", "describe the checkpoint as HTML");
  AddSource(command, arguments->source);
  command->get_option("-o")
      ->description("the page, instead of standard output; or options of sources")
      ->type_name("FILE|OPTION,...");
  command->add_option("--output", arguments->output, "the page, whatever its name is")
      ->type_name("FILE");
  command->add_flag("-f,--force", arguments->is_forced, "replace the file");
  command->add_flag("--no-values", arguments->has_no_values, "do not read the tensors");
  command->parse_complete_callback(
      [&parsed, arguments] { TakeOutput(parsed.options, arguments->output); });
  SetAction(command, parsed, arguments, [](const Opener& open, const ReportArguments& a) {
    std::optional<OutputFile> out;
    if (!a.output.empty()) {  // Before anything is read, which takes time.
      CheckOutput(a.output, a.existing());
      out.emplace(a.output);
    }
    return Report(*open(a.source, nullptr), !a.has_no_values, std::move(out), a.existing());
  });
}

}  // namespace

void AddCommands(CLI::App& app, ParsedCommand& parsed) {
  constexpr void (*kCommands[])(CLI::App&, ParsedCommand&) = {
      // In the order of --help.
      AddLs, AddInfo, AddCat, AddShow, AddStat, AddDiff, AddConvert, AddVerify, AddScan, AddReport};
  for (const auto add : kCommands) add(app, parsed);
}

}  // namespace ckptfs::ckpt
