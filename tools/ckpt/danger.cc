#include "tools/ckpt/danger.h"

#include <algorithm>

namespace ckptfs::ckpt {
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

// What such modules have that does no harm.
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
