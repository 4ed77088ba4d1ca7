// The program: a table of contents. Each step may fail; the exit status is that of the step.

#include <malloc.h>
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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "fs/checks.h"
#include "fs/guard.h"
#include "fs/log.h"
#include "fs/mounting.h"
#include "fs/mountpoint.h"
#include "fs/namespace.h"
#include "fs/options.h"
#include "fs/process.h"
#include "fs/remote.h"
#include "fs/secrets.h"
#include "fs/session.h"
#include "fs/store.h"
#include "fs/tree.h"
#include "fs/tree_reader.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/io/location.h"

namespace ckptfs {
namespace {

// A SIGUSR1 before the mount is answered after it.
void BlockStatusSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
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

// The contents of the mount: one checkpoint, or a store of many.
struct Contents {
  std::unique_ptr<const Tree> tree;  // Of the one.
  std::unique_ptr<Namespace> files;
  Store* store = nullptr;  // Null: there is one checkpoint.
};

// Returns `folder` without the mount point, if it is in there.
FolderPtr WithoutMountpoint(FolderPtr folder, const std::string& mountpoint) {
  if (folder->is_remote()) return folder;
  std::error_code error;
  const auto root = std::filesystem::canonical(folder->name(), error);
  const auto path = std::filesystem::canonical(mountpoint, error).lexically_relative(root);
  if (error || path.empty() || path == "." || *path.begin() == "..") return folder;
  return MakeHidingFolder(std::move(folder), path.string());
}

// Reads the checkpoint that `source` is; if it is a directory of several, makes a store of it.
Contents ReadContents(const Source& source, TreeReader& reader, const Options& options,
                      Readers& readers, Log& log) {
  const mode_t mask_of_folder =
      options.umask ? *options.umask : readers.MaskFor(options.gid.value_or(::getgid()));
  Contents contents;
  if (options.store == StoreMode::kIfNeeded || source.file) {
    try {
      TreeReader::Result result = reader.ReadAlone(source);
      LogWarnings(log, source.name(), result.warnings);
      const mode_t umask = options.umask ? *options.umask : result.umask;
      contents.tree = std::make_unique<const Tree>(std::move(result.tree));
      contents.files = std::make_unique<TreeNamespace>(*contents.tree, source.modified(), umask);
      return contents;
    } catch (const Error& e) {
      if (e.code() != ENOTUNIQ || source.file || !options.sidecar.empty()) throw;
    }
  }
  auto store = std::make_unique<Store>(
      WithoutMountpoint(source.folder, options.mountpoint), options, mask_of_folder,
      [&reader](const Source& one) { return reader.ReadOneOfMany(one); }, log);
  contents.store = store.get();
  contents.files = std::move(store);
  return contents;
}

// The source in the table of mounts, where a relative path has no meaning.
std::string NameInMountTable(const std::string& source) {
  return SchemeNameOf(source).empty() ? std::filesystem::absolute(source).string()
                                      : Redacted(source);
}

std::string StatusOf(const Remote& remote, const Store* store) {
  return store == nullptr ? remote.Status() : store->Status() + "; " + remote.Status();
}

int Serve(const Options& options, Mountpoint mountpoint, Log& log,
          const std::function<void()>& mounted) {
  Step step = Step::kSecret;
  return Guard(log, step, options.no_fail, [&] {
    // Here, and not in the caller: locked memory is not inherited.
    Secrets secrets(options);
    step = Step::kOpen;
    Readers readers;
    Remote remote(options, readers, log);
    Source source = remote.Open(options.source);
    if (source.file && options.store != StoreMode::kIfNeeded) {
      step = Step::kCommandLine;
      Fail(EINVAL, "option store: {} is a file, but a store is a directory", source.name());
    }
    std::optional<TreeReader> reader(std::in_place, options, remote, readers, std::move(secrets),
                                     log);
    if (!options.sidecar.empty()) reader->SetSidecar(remote.OpenFile(options.sidecar));
    step = Step::kParse;
    const Contents contents = ReadContents(source, *reader, options, readers, log);
    step = Step::kMount;
    CheckFuse();
    if (options.is_fake) return 0;
    step = Step::kMountpoint;
    mountpoint.Prepare();
    step = Step::kMount;
    ::malloc_trim(0);  // Reading has left holes that serving will not need.
    Session session(*contents.files, NameInMountTable(options.source), options,
                    std::move(mountpoint),
                    {.is_remote = remote.is_used(),
                     .stop = [&remote] { remote.Stop(); },
                     .status = [&] { return StatusOf(remote, contents.store); }},
                    log);
    if (contents.store != nullptr) {
      contents.store->SetForgetEntry([&session](uint64_t directory, std::string name) {
        session.invalidator().AddEntry(directory, std::move(name));
      });
    }
    source = {};
    reader->AllowScratch();
    if (contents.store == nullptr) reader.reset();  // With the secret.
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
    PrepareProcess();
    // An ignored SIGCHLD is inherited, and waitpid then fails.
    std::signal(SIGCHLD, SIG_DFL);
    BlockStatusSignal();
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
