// The program: a table of contents. Each step may fail, and which one it was says the exit status.

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fs/background.h"
#include "fs/log.h"
#include "fs/mountpoint.h"
#include "fs/options.h"
#include "fs/session.h"
#include "fs/strict.h"
#include "fs/tensordict.h"
#include "fs/tree.h"
#include "parser/error.h"
#include "parser/open.h"

namespace ckptfs {
namespace {

// What is being done.
enum class Step { kStart, kCommandLine, kMountpoint, kOpen, kParse, kMount, kServe };

ExitCode ExitCodeOf(Step step, int error) {
  if (error == ENOMEM) return ExitCode::kUnexpected;
  switch (step) {
    case Step::kStart:
    case Step::kServe:
      return ExitCode::kUnexpected;
    case Step::kCommandLine:
      return ExitCode::kUsage;
    case Step::kMountpoint:
      return ExitCode::kMountpoint;
    case Step::kOpen:
      return ExitCode::kSource;
    case Step::kMount:
      return ExitCode::kFuse;
    case Step::kParse:
      break;
  }
  switch (error) {
    case ENOTSUP:
      return ExitCode::kNoCheckpoint;
    case EFBIG:
    case EOVERFLOW:
    case ENAMETOOLONG:
      return ExitCode::kTooLarge;
    case EACCES:
    case ENOENT:
    case ESTALE:
    case ETIMEDOUT:
      return ExitCode::kSource;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      return ExitCode::kUnexpected;
    default:
      return ExitCode::kDamaged;
  }
}

// Runs `body`, which keeps `step` up to date, and tells what it throws.
int Guard(Log& log, const Step& step, const std::function<int()>& body) {
  ExitCode code = ExitCode::kUnexpected;
  try {
    return body();
  } catch (const Error& e) {
    log.Say(Log::Level::kError, e.what());
    code = ExitCodeOf(step, e.code());
  } catch (const std::bad_alloc&) {
    log.Say(Log::Level::kError, "out of memory");
  } catch (const std::exception& e) {
    log.Error("a mistake of ckptfs itself, please report it: {}", e.what());
  }
  return static_cast<int>(code);
}

// A checkpoint in many files keeps a descriptor for each, and the usual limit is 1024.
void RaiseFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void TellWarnings(Log& log, const std::string& source, const std::vector<std::string>& warnings) {
  constexpr size_t kMost = 10;
  for (const std::string& warning : std::span(warnings).first(std::min(kMost, warnings.size()))) {
    log.Warning("{}: {}", source, warning);
  }
  if (warnings.size() > kMost) {
    log.Warning("{}: and {} more of them", source, warnings.size() - kMost);
  }
}

Tree ReadTree(const Source& source, const Options& options, Log& log) {
  Checkpoint checkpoint = ReadCheckpoint(source);
  if (options.strict) CheckWhole(checkpoint, source.name());
  TellWarnings(log, source.name(), checkpoint.warnings);
  return LayOut(std::move(checkpoint), {.is_flat = options.flat,
                                        .has_attributes = options.xattr,
                                        .source = Redacted(options.source),
                                        .version = CKPTFS_VERSION});
}

// What the table of mounts shows: a relative path would mean nothing there.
std::string NameInMountTable(const std::string& source) {
  return SchemeNameOf(source).empty() ? std::filesystem::absolute(source).string()
                                      : Redacted(source);
}

int Serve(const Options& options, Log& log, const std::function<void()>& mounted) {
  Step step = Step::kOpen;
  return Guard(log, step, [&] {
    Source source;
    try {
      source = OpenSource(options.source);
    } catch (const Error& e) {
      if (!options.no_fail || e.code() != ENOENT) throw;
      log.Warning("{}; nothing is mounted, as nofail wants", e.what());
      return 0;
    }
    step = Step::kParse;
    const Tree tree = ReadTree(source, options, log);
    step = Step::kMount;
    CheckFuse();
    if (options.is_fake) return 0;
    ::malloc_trim(0);  // Reading has left holes that serving will not need.
    Session session(tree, source.modified(), NameInMountTable(options.source), options, log);
    source = {};
    step = Step::kServe;
    log.Info("mounted on {}", options.mountpoint);
    mounted();
    session.Run();
    log.Info("unmounted from {}", options.mountpoint);
    return 0;
  });
}

int Print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0
             ? 0
             : static_cast<int>(ExitCode::kUnexpected);
}

int Main(const std::string& program, std::span<const char* const> arguments) {
  Log log;
  Step step = Step::kStart;
  return Guard(log, step, [&] {
    FillStandardDescriptors();
    // A caller that is gone, or a connection that is closed, is an error code and no death.
    std::signal(SIGPIPE, SIG_IGN);
    RaiseFileLimit();
    step = Step::kCommandLine;
    Options options = ParseOptions(program, arguments);
    if (options.help) return Print(Usage());
    if (options.version) return Print("ckptfs " CKPTFS_VERSION "\n");
    step = Step::kMountpoint;
    options.mountpoint = CheckedMountpoint(options.mountpoint, options.nonempty);
    step = Step::kStart;
    if (options.debug) log.SetLeast(Log::Level::kDebug);
    if (options.foreground || options.debug || options.is_fake) {
      return Serve(options, log, [] {});
    }
    return RunInBackground(options.mountpoint, [&](const std::function<void()>& mounted) {
      return Serve(options, log, [&] {
        log.LeaveTerminal();
        mounted();
      });
    });
  });
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
  // A program may be called without even a name.
  const std::span<const char* const> words(argv, static_cast<size_t>(argc));
  if (words.empty()) return ckptfs::Main("ckptfs", {});
  return ckptfs::Main(words.front(), words.subspan(1));
}
