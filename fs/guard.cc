#include "fs/guard.h"

#include <cerrno>
#include <exception>
#include <new>

#include "parser/base/error.h"

namespace ckptfs {

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
    case Step::kSecret:
      return error == EINVAL ? ExitCode::kUsage : ExitCode::kSource;
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
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case EKEYREJECTED:
    case ENETUNREACH:
    case ENOENT:
    case ENOKEY:
    case EPROTO:
    case EREMOTEIO:
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

bool IsUnavailable(Step step, int error) {
  switch (error) {
    case EACCES:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case ENODEV:
    case ENOENT:
    case ENOMEDIUM:
    case ENOTCONN:
    case ENOTDIR:
    case ENXIO:
    case EPERM:
    case EPROTO:
    case EREMOTEIO:
    case ESTALE:
    case ETIMEDOUT:
      return step == Step::kOpen || step == Step::kParse;
    case EIO:
      return step == Step::kOpen;  // Later, this is corrupt bytes, too.
    default:
      return false;
  }
}

int Guard(Log& log, const Step& step, bool no_fail, const std::function<int()>& body) {
  ExitCode code = ExitCode::kUnexpected;
  try {
    return body();
  } catch (const Error& e) {
    if (no_fail && IsUnavailable(step, e.code())) {
      log.Warning("{}; nothing is mounted (nofail)", e.what());
      return static_cast<int>(ExitCode::kMounted);
    }
    log.Say(Log::Level::kError, e.what());
    code = ExitCodeOf(step, e.code());
  } catch (const std::bad_alloc&) {
    log.Say(Log::Level::kError, "out of memory");
  } catch (const std::exception& e) {
    log.Error("internal error, please report it: {}", e.what());
  }
  return static_cast<int>(code);
}

}  // namespace ckptfs
