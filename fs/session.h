// A mounted tree.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fs/invalidator.h"
#include "fs/log.h"
#include "fs/mounting.h"
#include "fs/namespace.h"
#include "fs/operations.h"
#include "fs/options.h"

namespace ckptfs {

// Logs the messages of libfuse while it exists. At most one exists at a time.
class FuseLog {
 public:
  // `log` must outlive this.
  explicit FuseLog(Log& log);
  FuseLog(const FuseLog&) = delete;
  FuseLog& operator=(const FuseLog&) = delete;
  ~FuseLog();
};

// Callbacks into the back end of a mount.
struct Backend {
  // Whether reads wait for a server: then more of them are answered at the same time.
  bool is_remote = false;

  // Makes blocked reads fail, because the session ends.
  std::function<void()> stop;

  // A sentence about what it is doing, for SIGUSR1.
  std::function<std::string()> status;
};

// Mounted as long as it lives. Belongs to one thread, which must be the only one when a session is
// made, but for those that have all signals blocked: threads that are started later leave SIGINT,
// SIGTERM, SIGHUP and SIGUSR1 to it.
class Session {
 public:
  // Mounts `files` on `mountpoint`, which is prepared. The table of mounts will show `source`.
  // `files` and `log` must outlive the session. Throws Error that names the mount point.
  Session(Namespace& files, const std::string& source, const Options& options,
          Mountpoint mountpoint, Backend backend, Log& log);

  // Makes the kernel forget names.
  Invalidator& invalidator() { return invalidator_; }

  // Answers the kernel with several threads; logs the status at SIGUSR1. Returns when the mount is
  // undone from outside or the process gets SIGINT, SIGTERM or SIGHUP. If then a request is not
  // answered within a few seconds, unmounts and ends the process. Throws Error if libfuse fails.
  void Run();

 private:
  // Unmounts and ends the process, whatever its threads are doing.
  [[noreturn]] void ForceExit();

  template <auto function>
  struct Call {
    void operator()(fuse_session* session) const { function(session); }
  };

  // Waits for a signal to end.
  void AwaitEnd();

  const Backend backend_;
  const bool has_slow_reads_;
  Invalidator invalidator_;
  Mount shared_;

  // One per thing to be undone, last thing first.
  std::unique_ptr<fuse_session, Call<fuse_session_destroy>> session_;
  std::unique_ptr<Mounting> mount_;
  std::optional<FuseLog> fuse_log_;
};

}  // namespace ckptfs
