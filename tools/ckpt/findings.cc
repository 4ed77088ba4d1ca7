#include "tools/ckpt/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "parser/base/json.h"

namespace ckptfs::ckpt {
namespace {

// The call, or the name of what is only imported, after the member of an archive.
std::string TextOf(const Import& import) {
  const size_t others = import.calls - std::min<size_t>(import.calls, 1);
  return fmt::format("{}{}{}{}", import.member, import.member.empty() ? "" : ": ",
                     import.call.empty() ? import.global.name : import.call,
                     others == 0 ? "" : fmt::format(", and {} more", others));
}

std::string Text(std::span<const ScannedFile> files) {
  std::string text;
  size_t scanned = 0, bad = 0;
  for (const ScannedFile& file : files) {
    scanned += file.is_checkpoint || file.error ? 1 : 0;
    bad += file.is_bad() ? 1 : 0;
    for (const Finding& finding : file.findings) {
      text += fmt::format("{}: {}: {}\n", Printable(file.name), NameOf(finding.danger),
                          Printable(TextOf(finding.import)));
    }
    if (file.error) text += fmt::format("{}: cannot be read\n", file.error->what());
  }
  return text + fmt::format("{} checkpoints scanned, {} with findings, {} other files\n", scanned,
                            bad, files.size() - scanned);
}

std::string StringOrNull(const std::string& text) {
  return text.empty() ? "null" : json::String(text);
}

std::string Json(std::span<const ScannedFile> files) {
  std::string text = "[";
  for (const ScannedFile& file : files) {
    if (!file.is_checkpoint && !file.error) continue;
    std::string findings;
    for (const auto& [import, danger] : file.findings) {
      findings += fmt::format(R"({}{{"global":{},"danger":{},"call":{},"calls":{},"member":{}}})",
                              findings.empty() ? "" : ",", json::String(import.global.name),
                              json::String(danger == Danger::kCode ? "code" : "refused"),
                              StringOrNull(import.call), import.calls, StringOrNull(import.member));
    }
    text += fmt::format("{}{{\"file\":{},\"findings\":[{}],\"error\":{}}}",
                        text.size() == 1 ? "\n" : ",\n", json::String(file.name), findings,
                        file.error ? json::String(file.error->what()) : "null");
  }
  return text + "\n]\n";
}

// Source: SARIF 2.1.0, https://docs.oasis-open.org/sarif/sarif/v2.1.0/
std::string Sarif(std::span<const ScannedFile> files) {
  std::string results;
  const auto add = [&](const ScannedFile& file, std::string_view rule, std::string_view level,
                       const std::string& message) {
    results +=
        fmt::format(R"({}{{"ruleId":{},"level":{},"message":{{"text":{}}},)"
                    R"("locations":[{{"physicalLocation":{{"artifactLocation":{{"uri":{}}}}}}}]}})",
                    results.empty() ? "" : ",", json::String(rule), json::String(level),
                    json::String(message), json::String(file.name));
  };
  for (const ScannedFile& file : files) {
    for (const auto& [import, danger] : file.findings) {
      const bool is_code = danger == Danger::kCode;
      add(file, is_code ? "dangerous-global" : "refused-global", is_code ? "error" : "warning",
          fmt::format("loading {} {}", import.call.empty() ? "imports" : "calls", TextOf(import)));
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

std::string FindingsText(std::span<const ScannedFile> files, ScanFormat format) {
  switch (format) {
    case ScanFormat::kText:
      return Text(files);
    case ScanFormat::kJson:
      return Json(files);
    case ScanFormat::kSarif:
      return Sarif(files);
  }
  return "";
}

namespace {

// Modules in which every function is dangerous, with the modules in them.
constexpr std::string_view kModules[] = {
    "_aix_support",
    "_ctypes",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "_io",
    "_operator",
    "_osx_support",
    "_pickle",
    "_posixsubprocess",
    "_pyrepl",
    "_socket",
    "_thread",
    "aiohttp",
    "asyncio",
    "bdb",
    "cProfile",
    "cloudpickle",
    "code",
    "codeop",
    "commands",
    "ctypes",
    "dill",
    "distutils",
    "doctest",
    "ensurepip",
    "fileinput",
    "ftplib",
    "http",
    "httplib",
    "httpx",
    "idlelib",
    "imaplib",
    "imp",
    "importlib",
    "io",
    "joblib",
    "lib2to3",
    "linecache",
    "logging.config",
    "marshal",
    "multiprocessing",
    "nt",
    "numpy.f2py",
    "numpy.testing",
    "os",
    "paramiko",
    "pdb",
    "pickle",
    "pip",
    "pkgutil",
    "platform",
    "popen2",
    "posix",
    "profile",
    "pty",
    "pydoc",
    "requests",
    "runpy",
    "shelve",
    "shutil",
    "signal",
    "site",
    "smtplib",
    "socket",
    "socketserver",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "sysconfig",
    "tarfile",
    "telnetlib",
    "tempfile",
    "test",
    "threading",
    "timeit",
    "torch._dynamo",
    "torch._inductor",
    "torch.fx.experimental",
    "torch.hub",
    "torch.jit.unsupported_tensor_ops",
    "torch.utils._config_module",
    "torch.utils.bottleneck",
    "torch.utils.collect_env",
    "torch.utils.cpp_extension",
    "torch.utils.data.datapipes",
    "trace",
    "urllib",
    "urllib2",
    "uuid",
    "venv",
    "webbrowser",
    "xmlrpc",
    "zipfile",
    "zipimport",
};

// Single functions of other modules.
constexpr std::string_view kFunctions[] = {
    "functools.partial",   "functools.reduce",         "operator.attrgetter",
    "operator.call",       "operator.itemgetter",      "operator.methodcaller",
    "torch.load",          "torch.serialization.load", "torch.storage._load_from_bytes",
    "types.CodeType",      "types.FunctionType",       "numpy.load",
    "pandas.eval",         "pandas.read_pickle",       "torch.jit.load",
    "logging.FileHandler",
};

// Harmless classes of such modules.
constexpr std::string_view kHarmless[] = {
    "joblib.numpy_pickle.NumpyArrayWrapper",
};

// Of builtins, which protocol 2 calls __builtin__.
constexpr std::string_view kBuiltins[] = {
    "__import__", "apply", "breakpoint", "compile", "delattr", "eval",  "exec",   "execfile",
    "exit",       "file",  "getattr",    "globals", "help",    "input", "locals", "memoryview",
    "open",       "quit",  "raw_input",  "reload",  "setattr", "vars",
};

}  // namespace

std::string_view NameOf(Danger danger) {
  switch (danger) {
    case Danger::kNone:
      return "allowed";
    case Danger::kRefused:
      return "refused by weights_only";
    case Danger::kCode:
      return "dangerous";
  }
  return "";
}

Danger DangerOf(std::string_view name, bool is_refused) {
  if (!is_refused) return Danger::kNone;
  for (const std::string_view prefix : {"builtins.", "__builtin__.", "__builtins__."}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view function = name.substr(prefix.size());
    return std::ranges::count(kBuiltins, function) > 0 ? Danger::kCode : Danger::kRefused;
  }
  if (std::ranges::count(kHarmless, name) > 0) return Danger::kRefused;
  const bool is_dangerous =
      std::ranges::count(kFunctions, name) > 0 ||
      std::ranges::any_of(kModules, [&](std::string_view module) {
        return name.starts_with(module) && name.substr(module.size()).starts_with('.');
      });
  return is_dangerous ? Danger::kCode : Danger::kRefused;
}

}  // namespace ckptfs::ckpt
