#include "fs/guard.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <fstream>
#include <new>
#include <system_error>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs {

ExitCode ExitCodeOf(Step step, int error) {
  constexpr int kUsageErrors[] = {EBUSY, EEXIST, EINVAL, EISDIR, ENOTDIR, ENOTEMPTY, EROFS};
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
    case Step::kCommand:
      // A slice that does not fit, or an output that exists or cannot be there.
      if (std::ranges::count(kUsageErrors, error) != 0) return ExitCode::kUsage;
      break;
    case Step::kParse:
      break;
  }
  switch (error) {
    case ENOTSUP:
    case ENOTUNIQ:
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
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      return ExitCode::kUnexpected;
    default:
      return ExitCode::kCorrupt;
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
      return step == Step::kOpen;  // Later, also for corrupt bytes.
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
    log.Write(Log::Level::kError, e.what());
    code = ExitCodeOf(step, e.code());
  } catch (const std::bad_alloc&) {
    log.Write(Log::Level::kError, "out of memory");
  } catch (const std::system_error& e) {
    log.Error("{}{}",
              e.code() == std::errc::resource_unavailable_try_again
                  ? "cannot start a thread: "
                  : "internal error, please report it: ",
              e.what());
  } catch (const std::exception& e) {
    log.Error("internal error, please report it: {}", e.what());
  }
  return static_cast<int>(code);
}

namespace {

// Private writable memory of this process in bytes; 0 if unknown.
uint64_t DataSize() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  constexpr int kData = 6;  // The sixth number.
  for (int i = 0; i < kData; ++i) file >> pages;
  return file ? pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

uint64_t DataLimit() {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_DATA, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

void SetDataLimit(uint64_t bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = bytes;
  ::setrlimit(RLIMIT_DATA, &limit);
}

// Memory outside the budget: stacks of threads, buffers, allocations of libraries.
constexpr uint64_t kOthers = uint64_t{768} << 20;
constexpr uint64_t kPerCounted = 3;

}  // namespace

std::chrono::seconds ParseTimeOf(const Options& options, bool is_remote) {
  return is_remote ? 2 * options.sources.timeout : std::chrono::seconds(60);
}

ParseLimits::ParseLimits(Budget& budget, Milliseconds allowance, std::function<void()> late)
    : ParseLimits(budget, allowance, std::move(late), Pace()) {}

ParseLimits::ParseLimits(Budget& budget, Milliseconds allowance, std::function<void()> late,
                         Pace pace)
    : budget_(budget),
      data_limit_(DataLimit()),
      late_(std::move(late)),
      pace_(pace),
      is_cancelled_([&budget] { return Budget::Clock::now() >= budget.deadline(); }),
      cancellation_(is_cancelled_) {
  budget_.SetTime(allowance);
  if (const uint64_t size = DataSize(); size > 0) {
    const auto follow = [this, size](uint64_t limit) {
      SetDataLimit(std::min(data_limit_, size + kOthers + kPerCounted * limit));
    };
    follow(budget_.limit());
    budget_.OnGrowth(follow);
  }
  watch_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
}

ParseLimits::~ParseLimits() {
  budget_.OnGrowth({});
  SetDataLimit(data_limit_);
}

// Polls the deadline, which may move.
void ParseLimits::Watch(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!stopped_.wait_for(lock, stop, pace_.interval, [&] { return stop.stop_requested(); })) {
    if (Budget::Clock::now() - pace_.grace >= budget_.deadline()) return late_();
  }
}

}  // namespace ckptfs
