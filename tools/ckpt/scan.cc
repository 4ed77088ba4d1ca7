#include "tools/ckpt/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "tools/ckpt/danger.h"
#include "tools/ckpt/output.h"

namespace ckptfs::ckpt {
namespace {

namespace fs = std::filesystem;

struct Finding {
  std::string global;
  Danger danger = Danger::kNone;
};

struct File {
  std::string name;
  bool is_checkpoint = true;
  std::vector<Finding> findings;
  std::optional<Error> error;
};

// Returns `sources`, and instead of a local folder the files in it, sorted.
std::vector<std::string> FilesOf(std::span<const std::string> sources) {
  std::vector<std::string> files;
  for (const std::string& source : sources) {
    std::error_code ignored;
    if (!fs::is_directory(source, ignored)) {
      files.push_back(source);
      continue;
    }
    std::vector<std::string> found;
    std::error_code error;
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator i(source, options, error), end; !error && i != end;
         i.increment(error)) {
      std::error_code gone;
      if (i->is_regular_file(gone)) found.push_back(i->path().string());
    }
    if (error) Fail(error.value(), "{}: cannot list: {}", source, ErrnoText(error.value()));
    std::ranges::sort(found);
    std::ranges::move(found, std::back_inserter(files));
  }
  return files;
}

File ScanFile(const std::string& name, const OpenModel& open) {
  File file{.name = name, .findings = {}, .error = {}};
  try {
    const auto model = open(name, nullptr);
    for (const Global& global : model->checkpoint().globals) {
      const Danger danger = DangerOf(global.name, global.is_refused);
      if (danger != Danger::kNone) file.findings.push_back({global.name, danger});
    }
  } catch (const Error& error) {
    if (error.code() == ENOTSUP) {
      file.is_checkpoint = false;
    } else {
      file.error = error;
    }
  }
  return file;
}

std::string TextOf(std::span<const File> files) {
  std::string text;
  size_t scanned = 0, bad = 0;
  for (const File& file : files) {
    scanned += file.is_checkpoint ? 1 : 0;
    bad += !file.findings.empty() || file.error ? 1 : 0;
    for (const Finding& finding : file.findings) {
      text += fmt::format("{}: {}: {}\n", Printable(file.name), NameOf(finding.danger),
                          Printable(finding.global));
    }
    if (file.error) text += fmt::format("{}: cannot be read\n", file.error->what());
  }
  return text + fmt::format("{} checkpoints scanned, {} with findings, {} other files\n", scanned,
                            bad, files.size() - scanned);
}

std::string JsonOf(std::span<const File> files) {
  std::string text = "[";
  for (const File& file : files) {
    if (!file.is_checkpoint) continue;
    std::string findings;
    for (const Finding& finding : file.findings) {
      findings += fmt::format(R"({}{{"global":{},"danger":{}}})", findings.empty() ? "" : ",",
                              json::String(finding.global),
                              json::String(finding.danger == Danger::kCode ? "code" : "refused"));
    }
    text += fmt::format("{}{{\"file\":{},\"findings\":[{}],\"error\":{}}}",
                        text.size() == 1 ? "\n" : ",\n", json::String(file.name), findings,
                        file.error ? json::String(file.error->what()) : "null");
  }
  return text + "\n]\n";
}

// Source: SARIF 2.1.0, https://docs.oasis-open.org/sarif/sarif/v2.1.0/
std::string SarifOf(std::span<const File> files) {
  std::string results;
  const auto add = [&](const File& file, std::string_view rule, std::string_view level,
                       const std::string& message) {
    results +=
        fmt::format(R"({}{{"ruleId":{},"level":{},"message":{{"text":{}}},)"
                    R"("locations":[{{"physicalLocation":{{"artifactLocation":{{"uri":{}}}}}}}]}})",
                    results.empty() ? "" : ",", json::String(rule), json::String(level),
                    json::String(message), json::String(file.name));
  };
  for (const File& file : files) {
    for (const Finding& finding : file.findings) {
      const bool is_code = finding.danger == Danger::kCode;
      add(file, is_code ? "dangerous-global" : "refused-global", is_code ? "error" : "warning",
          "loading imports " + finding.global);
    }
    if (file.error) add(file, "unreadable", "error", file.error->what());
  }
  return fmt::format(
      R"({{"$schema":"https://json.schemastore.org/sarif-2.1.0.json","version":"2.1.0","runs":[)"
      R"({{"tool":{{"driver":{{"name":"ckpt","rules":[)"
      R"({{"id":"dangerous-global","shortDescription":{{"text":"a pickle imports what runs code"}}}},)"
      R"({{"id":"refused-global","shortDescription":{{"text":"weights_only refuses an import"}}}},)"
      R"({{"id":"unreadable","shortDescription":{{"text":"the checkpoint cannot be read"}}}}]}}}},)"
      R"("results":[{}]}}]}})"
      "\n",
      results);
}

}  // namespace

int Scan(std::span<const std::string> sources, const OpenModel& open, ScanFormat format) {
  std::vector<File> files;
  for (const std::string& name : FilesOf(sources)) files.push_back(ScanFile(name, open));
  switch (format) {
    case ScanFormat::kText:
      Print(TextOf(files));
      break;
    case ScanFormat::kJson:
      Print(JsonOf(files));
      break;
    case ScanFormat::kSarif:
      Print(SarifOf(files));
      break;
  }
  const auto is_bad = [](const File& file) { return !file.findings.empty() || file.error; };
  return std::ranges::any_of(files, is_bad) ? 1 : 0;
}

}  // namespace ckptfs::ckpt
