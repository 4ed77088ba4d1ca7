// The log.
//
// Before the mount, messages go to standard error; a daemon has no terminal and logs to syslog.
// With a log file, all messages go there instead of syslog. Checkpoints and servers are untrusted,
// and a program may read a corrupt file a million times: messages are always printable, and their
// number per second is limited, except for those that are logged only once.

#pragma once

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/fd.h"
#include "parser/base/mutex.h"

namespace ckptfs {

// Admits at most kMostPerSecond messages in each second. Belongs to one thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kMostPerSecond = 20;

  // Returns whether a message at `now` may pass. Times do not go backwards.
  bool Admits(Clock::time_point now);

  // Returns the number of messages dropped in the seconds before that of `now`, each counted once.
  uint64_t TakeDropped(Clock::time_point now);

 private:
  bool IsInWindow(Clock::time_point now) const;

  Clock::time_point window_;  // The start of the second in which messages are counted.
  uint64_t admitted_ = 0;
  uint64_t dropped_ = 0;
};

// The destination of messages. At most one exists at a time. Thread-safe.
class Log {
 public:
  enum class Level : uint8_t {
    kError,    // An operation failed.
    kWarning,  // The result may differ from expectations.
    kNotice,   // The reply to a request of the user. Not limited.
    kInfo,     // Mounted, unmounted.
    kDebug,    // Each request. Not limited in number.
  };

  // Logs errors and warnings of `program`, a literal, to standard error.
  explicit Log(const char* program = "ckptfs") : program_(program) {}
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

  // Sets the lowest level that is logged.
  void SetLevel(Level least);

  // Appends all later messages to the file at `path`, one line each with date and process. A
  // missing file is created with mode 0600. Throws Error.
  void OpenFile(const std::string& path);

  // Stops logging to standard error. Later messages go to syslog unless there is a log file.
  void LeaveTerminal();

  // Logs `text`, a sentence in lower case without a full stop. Never throws: on failure the message
  // is dropped.
  void Write(Level level, std::string_view text) noexcept;

  // Logs a text that is formatted as by fmt::format.
  template <typename... Args>
  void Error(fmt::format_string<Args...> format, Args&&... args) {
    Write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Warning(fmt::format_string<Args...> format, Args&&... args) {
    Write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Notice(fmt::format_string<Args...> format, Args&&... args) {
    Write(Level::kNotice, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Info(fmt::format_string<Args...> format, Args&&... args) {
    Write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void WriteLocked(Level level, std::string_view text) const REQUIRES(mutex_);
  void ReportDropped(RateLimit::Clock::time_point now) REQUIRES(mutex_);

  const char* const program_;
  std::atomic<Level> least_ = Level::kWarning;
  Mutex mutex_;
  RateLimit limit_ GUARDED_BY(mutex_);
  Fd file_ GUARDED_BY(mutex_);
  bool is_on_terminal_ GUARDED_BY(mutex_) = true;
};

// Logs the first warnings about the source `name`, and the number of the others.
void LogWarnings(Log& log, const std::string& name, const std::vector<std::string>& warnings);

}  // namespace ckptfs
