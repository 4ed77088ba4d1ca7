// A mounted tree.

#pragma once

#include <ctime>
#include <memory>
#include <string>

#include "fs/invalidator.h"
#include "fs/log.h"
#include "fs/operations.h"
#include "fs/options.h"
#include "fs/tree.h"

namespace ckptfs {

// Mounted as long as it lives. Belongs to one thread, which must be the only one when a session is
// made: threads that are started later leave SIGINT, SIGTERM and SIGHUP to it.
class Session {
 public:
  // Mounts `tree`, whose files were last changed at `modified`, on options.mountpoint. The table of
  // mounts will show `source`. `tree` and `log` must outlive the session. Throws Error that names
  // the mount point.
  Session(const Tree& tree, timespec modified, const std::string& source, const Options& options,
          Log& log);

  // Answers the kernel with several threads. Returns when the mount is undone from outside or the
  // process gets SIGINT, SIGTERM or SIGHUP. If then a request is not answered within a few seconds,
  // unmounts and ends the process. Throws Error if libfuse gives up.
  void Run();

 private:
  // Unmounts and ends the process, whatever its threads are doing.
  [[noreturn]] void GiveUp();

  template <auto function>
  struct Call {
    void operator()(fuse_session* session) const { function(session); }
  };

  Invalidator invalidator_;
  Mount shared_;

  // One per thing to be undone, last thing first.
  std::unique_ptr<fuse_session, Call<fuse_session_destroy>> session_;
  std::unique_ptr<fuse_session, Call<fuse_session_unmount>> mount_;
};

}  // namespace ckptfs
