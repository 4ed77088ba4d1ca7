// The program: a table of contents. Each step may fail; the exit status is that of the step.

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "fs/daemonize.h"
#include "fs/guard.h"
#include "fs/log.h"
#include "fs/mounting.h"
#include "fs/mountpoint.h"
#include "fs/namespace.h"
#include "fs/options.h"
#include "fs/remote.h"
#include "fs/secrets.h"
#include "fs/session.h"
#include "fs/strict.h"
#include "fs/tensordict.h"
#include "fs/tree.h"
#include "fs/verification.h"
#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/detect.h"
#include "parser/location.h"

namespace ckptfs {
namespace {

// A SIGUSR1 before the mount is answered after it.
void BlockStatusSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// A checkpoint in many files keeps a descriptor for each, and the usual limit is 1024.
void RaiseFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The checkpoint and the environment may hold secrets: excludes this process from core dumps, and
// from inspection by other processes of the same user.
void HideMemory() {
  constexpr rlimit kNone = {};
  ::setrlimit(RLIMIT_CORE, &kNone);
  ::prctl(PR_SET_DUMPABLE, 0);
}

// A mount that root has made for a user of sudo is of no use to that user.
void ExplainSudo(const Options& options, Log& log) {
  const char* const user = std::getenv("SUDO_UID");
  if (user == nullptr || ::geteuid() != 0 || options.allow_other) return;
  log.Warning(
      "{}: only root can read this mount, because of sudo; to read it as user {}, mount with -o "
      "allow_other,uid={}, and unmount it with sudo ckptfs -u",
      options.mountpoint, Quoted(user), Printable(user));
}

void CheckMountpointIsNot(const std::string& source, const std::string& mountpoint) {
  std::error_code error;
  if (SchemeNameOf(source).empty() && std::filesystem::equivalent(source, mountpoint, error)) {
    Fail(EINVAL, "{}: is the checkpoint itself; name another mount point", mountpoint);
  }
}

void LogWarnings(Log& log, const std::string& source, const std::vector<std::string>& warnings) {
  constexpr size_t kMost = 10;
  for (const std::string& warning : std::span(warnings).first(std::min(kMost, warnings.size()))) {
    log.Warning("{}: {}", source, warning);
  }
  if (warnings.size() > kMost) {
    log.Warning("{}: {} more warnings", source, warnings.size() - kMost);
  }
}

ByteSourcePtr OpenSidecar(const std::string& uri, Remote& remote) {
  Source source = remote.Open(uri);
  if (!source.file) Fail(EISDIR, "{}: is a directory, but a sidecar is a file", Redacted(uri));
  return std::move(source.file);
}

// The default limit of scratch files.
uint64_t UsualScratch() {
  constexpr uint64_t kMost = uint64_t{4} << 30U;
  constexpr uint64_t kShare = 4;
  return std::min(kMost, FreeForTemporaryFiles() / kShare);
}

Tree ReadTree(const Source& source, const ReadOptions& what, const Options& options,
              const Secrets& secrets, Log& log) {
  Checkpoint checkpoint = ReadCheckpoint(source, what);
  if (options.strict) CheckWhole(checkpoint, source.name());
  // Logged at the end: a failure is reported in one sentence.
  const std::vector<std::string> warnings = checkpoint.warnings;
  Tree tree = LayOut(std::move(checkpoint), {.is_flat = options.flat,
                                             .has_attributes = options.xattr,
                                             .source = Redacted(options.source),
                                             .version = CKPTFS_VERSION});
  if (const std::string option = secrets.UnneededOption(); !option.empty()) {
    log.Warning("{}: {} is unused: the checkpoint is not encrypted", source.name(), option);
  }
  LogWarnings(log, source.name(), warnings);
  return tree;
}

// Reads the checkpoint and lays it out, in bounded memory and time.
Tree ReadBounded(const Source& source, const ByteSourcePtr& sidecar, const Options& options,
                 bool is_remote, const std::shared_ptr<ScratchSpace>& scratch, Secrets secrets,
                 Log& log) {
  // A server has so long for each request; if one has failed, there is time for others.
  const auto allowance = is_remote ? 2 * options.sources.timeout : std::chrono::seconds(60);
  Budget budget;
  const ParseNet net(budget, allowance, [&] {
    log.Error("{}: reading the headers does not end", source.name());
    ::_exit(static_cast<int>(ExitCode::kTooLarge));
  });
  const auto ask = [&](bool takes_passphrase) {
    budget.StopTime();  // Users may take theirs.
    auto secret = secrets.Get(takes_passphrase);
    budget.SetTime(allowance);
    return secret;
  };
  const ReadOptions what{.ask_secret = ask,
                         .verification = VerificationFor(options.verify, log),
                         .scratch = scratch,
                         .sidecar = sidecar,
                         .budget = &budget};
  try {
    return Metered(budget, [&] { return ReadTree(source, what, options, secrets, log); });
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(source.name())) throw;
    throw WithContext(source.name(), e);
  }
}

// Advises the sources of the files of the mount.
void AdviseFiles(const Tree& tree) {
  for (uint64_t number = Tree::kRoot; number < Tree::kRoot + tree.inode_count(); ++number) {
    const Inode& inode = *tree.Find(number);
    if (!inode.is_directory()) inode.source->AdviseFile({inode.offset, inode.length});
  }
}

// The source in the table of mounts, where a relative path has no meaning.
std::string NameInMountTable(const std::string& source) {
  return SchemeNameOf(source).empty() ? std::filesystem::absolute(source).string()
                                      : Redacted(source);
}

int Serve(Options options, Mountpoint mountpoint, Log& log, const std::function<void()>& mounted) {
  Step step = Step::kSecret;
  return Guard(log, step, options.no_fail, [&] {
    // Here, and not in the caller: locked memory is not inherited.
    Secrets secrets(options);
    step = Step::kOpen;
    Readers readers;
    Remote remote(options, readers, log);
    Source source = remote.Open(options.source);
    ByteSourcePtr sidecar;
    if (!options.sidecar.empty()) sidecar = OpenSidecar(options.sidecar, remote);
    step = Step::kParse;
    const auto scratch = std::make_shared<ScratchSpace>();
    const Tree tree =
        ReadBounded(source, sidecar, options, remote.is_used(), scratch, std::move(secrets), log);
    if (remote.is_used()) AdviseFiles(tree);
    step = Step::kMount;
    CheckFuse();
    if (options.is_fake) return 0;
    step = Step::kMountpoint;
    mountpoint.Prepare();
    step = Step::kMount;
    ::malloc_trim(0);  // Reading has left holes that serving will not need.
    if (!options.umask) options.umask = readers.MaskFor(options.gid.value_or(::getgid()));
    TreeNamespace files(tree, source.modified(), *options.umask);
    Session session(files, NameInMountTable(options.source), options, std::move(mountpoint),
                    {.is_remote = remote.is_used(),
                     .stop = [&remote] { remote.Stop(); },
                     .status = [&remote] { return remote.Status(); }},
                    log);
    source = {};
    scratch->Allow(options.scratch ? *options.scratch : UsualScratch());
    step = Step::kServe;
    ExplainSudo(options, log);
    mounted();
    // Not before: that the parts which are read for the mount are valid is not worth a line.
    if (!options.debug) log.SetLevel(Log::Level::kInfo);
    log.Info("mounted on {}", options.mountpoint);
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
  return Guard(log, step, false, [&] {
    FillStandardDescriptors();
    // A caller that is gone, a connection that is closed, or a temporary file that may not grow is
    // an error code and no death.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    // An ignored SIGCHLD is inherited, and waitpid then fails.
    std::signal(SIGCHLD, SIG_DFL);
    BlockStatusSignal();
    RaiseFileLimit();
    HideMemory();
    step = Step::kCommandLine;
    Options options = ParseOptions(program, arguments);
    options.sources.user_agent = "ckptfs/" CKPTFS_VERSION;
    if (options.help) return Print(Usage());
    if (options.version) return Print("ckptfs " CKPTFS_VERSION "\n");
    if (!options.log_file.empty()) log.OpenFile(options.log_file);
    if (!options.unmount) CheckOrder(options.source, options.mountpoint);
    step = Step::kMountpoint;
    if (options.unmount) {
      Unmount(options.mountpoint);
      return 0;
    }
    CheckMountpointIsNot(options.source, options.mountpoint);
    Mountpoint mountpoint(options.mountpoint, options.nonempty);
    options.mountpoint = mountpoint.path();
    step = Step::kStart;
    if (options.debug) log.SetLevel(Log::Level::kDebug);
    if (options.foreground || options.debug || options.is_fake) {
      return Serve(options, std::move(mountpoint), log, [] {});
    }
    return Daemonize(options.mountpoint, [&](const std::function<void()>& mounted) {
      return Serve(options, std::move(mountpoint), log, [&] {
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
