// The end of a session. Three signals end it, but libfuse's own handlers only make
// the loop stop taking requests: then it waits for those that are being answered, and a disk or a
// server may keep one of them for long. So the signals are blocked in all threads, the main thread
// waits for one of them, and the loop runs in a thread beside it. A signal makes the loop stop;
// after a time limit the mount is undone under it and the process ends. The loop's thread sends
// SIGINT to the main thread when it ends by itself, so that AwaitEnd waits for signals only.
//
// Reads that may take long are interrupted first.
//
// The thread that invalidates pages of the kernel may block there until requests are
// answered: so the loop goes on until that thread has ended.

#include "fs/session.h"

#include <fcntl.h>
#include <fuse_log.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/io/byte_source.h"

namespace ckptfs {
namespace {

// The kernel sends large reads two at a time for each reader.
constexpr unsigned kThreads = 4;

// For reads that are not local and immediate. A read that waits for a server holds a thread.
constexpr unsigned kSlowThreads = 4;
constexpr unsigned kStoreThreads = 16;  // Some of which may read checkpoints.
constexpr unsigned kRemoteThreads = 64;

constexpr std::chrono::seconds kStopTimeout{3};

sigset_t AwaitedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
  return signals;
}

// Sets a longer read-ahead than the kernel's default, which only root may. Must happen
// before the reply to the first request of the kernel. Failure only makes reads slower.
void RaiseReadAhead(const std::string& mountpoint, unsigned bytes) {
  struct statx st = {};
  if (::statx(AT_FDCWD, mountpoint.c_str(), AT_STATX_DONT_SYNC, STATX_INO, &st) < 0) return;
  const auto path =
      fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", st.stx_dev_major, st.stx_dev_minor);
  const auto kilobytes = fmt::format("{}", bytes / 1024);
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.number() < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(file.number(), kilobytes.data(), kilobytes.size());
}

}  // namespace

Session::Session(Namespace& files, const std::string& source, const Options& options,
                 Mountpoint mountpoint, Backend backend, Log& log)
    : backend_(std::move(backend)),
      has_slow_reads_(files.has_slow_reads()),
      invalidator_(files),
      shared_{.files = files,
              .log = log,
              .uid = options.uid.value_or(::getuid()),
              .gid = options.gid.value_or(::getgid()),
              .is_remote = backend_.is_remote,
              .invalidator = &invalidator_} {
  std::string program = "ckptfs";
  std::string flag = "-o";
  std::string list = "ro,nosuid,nodev,default_permissions,subtype=ckptfs,fsname=";
  list += EscapedOption(Printable(source));
  if (options.allow_other) list += ",allow_other";
  if (options.debug) list += ",debug";
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
  // If the kernel enables it; else libfuse continues without. It has room for few requests
  // that are under way.
  if (!has_slow_reads_) list += ",io_uring";
#endif
  std::array<char*, 3> argv = {program.data(), flag.data(), list.data()};
  fuse_args args = FUSE_ARGS_INIT(argv.size(), argv.data());
  const std::unique_ptr<fuse_args, decltype(&fuse_opt_free_args)> freed_at_exit(&args,
                                                                                fuse_opt_free_args);

  // Before the mount, or a signal could end the process and leave a dead mount.
  const sigset_t signals = AwaitedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const fuse_lowlevel_ops operations = Operations(options.xattr);
  session_.reset(fuse_session_new(&args, &operations, sizeof operations, &shared_));
  if (!session_) Fail(ENOMEM, "{}: cannot mount: libfuse makes no session", options.mountpoint);
  mount_ = std::make_unique<Mounting>(session_.get(), std::move(mountpoint),
                                      MountSettings{.source = Printable(source),
                                                    .allow_other = options.allow_other,
                                                    .auto_unmount = options.auto_unmount});
  fuse_log_.emplace(log);
  RaiseReadAhead(options.mountpoint, ReadAheadOf(shared_));
}

void Session::ForceExit() {
  shared_.log.Warning("unmounted with a request still pending");
  mount_.reset();
  std::_Exit(EXIT_SUCCESS);
}

void Session::AwaitEnd() {
  const sigset_t signals = AwaitedSignals();
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGUSR1) {
    shared_.log.Write(Log::Level::kNotice, backend_.status());
  }
}

void Session::Run() {
  // Wakes the thread of the loop when it waits; a handler is needed, but nothing for it to do.
  struct sigaction wake = {};
  wake.sa_handler = [](int) {};
  ::sigaction(SIGUSR2, &wake, nullptr);

  std::optional<SlowReads> slow_reads;
  if (has_slow_reads_) {
    const unsigned local = shared_.files.is_constant() ? kSlowThreads : kStoreThreads;
    shared_.slow_reads = &slow_reads.emplace(backend_.is_remote ? kRemoteThreads : local);
  }
  const pthread_t main_thread = pthread_self();
  std::promise<int> promise;
  std::future<int> result = promise.get_future();
  std::promise<void> idle_promise;
  const std::future<void> idle = idle_promise.get_future();
  std::jthread invalidation([&](const std::stop_token& stop) {
    invalidator_.Run(session_.get(), stop);
    idle_promise.set_value();
  });
  // Last: nothing ends this thread if another one cannot be started.
  std::jthread loop([&] {
    const std::unique_ptr<fuse_loop_config, decltype(&fuse_loop_cfg_destroy)> config(
        fuse_loop_cfg_create(), fuse_loop_cfg_destroy);
    fuse_loop_cfg_set_max_threads(config.get(), kThreads);
    promise.set_value(fuse_session_loop_mt(session_.get(), config.get()));
    pthread_kill(main_thread, SIGINT);
  });

  AwaitEnd();
  backend_.stop();
  const auto deadline = std::chrono::steady_clock::now() + kStopTimeout;
  if (slow_reads) {
    slow_reads->Stop();
    if (!slow_reads->AwaitEnd(deadline)) ForceExit();
  }
  invalidation.request_stop();
  if (idle.wait_until(deadline) != std::future_status::ready) ForceExit();
  fuse_session_exit(session_.get());
  // More than once: the first may come just before the loop begins to wait.
  while (result.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() > deadline) ForceExit();
    pthread_kill(loop.native_handle(), SIGUSR2);
  }
  // 0 after an unmount, the number of a signal, or a negated errno.
  if (const int code = result.get(); code < 0) {
    Fail(-code, "cannot go on: {}", ErrnoText(-code));
  }
}

namespace {

Log::Level FromFuse(fuse_log_level level) {
  if (level <= FUSE_LOG_ERR) return Log::Level::kError;
  if (level == FUSE_LOG_WARNING) return Log::Level::kWarning;
  return level == FUSE_LOG_DEBUG ? Log::Level::kDebug : Log::Level::kInfo;
}

// The log of libfuse's messages, whose callback has no user data.
std::atomic<Log*> fuse_log = nullptr;

__attribute__((format(printf, 2, 0))) void LogForFuse(fuse_log_level level, const char* format,
                                                      va_list arguments) {
  std::array<char, 512> text = {};
  if (std::vsnprintf(text.data(), text.size(), format, arguments) < 0) return;
  std::string_view line = text.data();
  while (line.ends_with('\n')) line.remove_suffix(1);
  if (Log* log = fuse_log.load()) log->Write(FromFuse(level), line);
}

}  // namespace

FuseLog::FuseLog(Log& log) {
  fuse_log = &log;
  ::fuse_set_log_func(LogForFuse);
}

FuseLog::~FuseLog() {
  ::fuse_set_log_func(nullptr);
  fuse_log = nullptr;
}

}  // namespace ckptfs
