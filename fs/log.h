// What ckptfs says while it runs.
//
// Up to the mount, messages are for the person at the terminal and go to standard error; a daemon
// has no terminal and goes on in syslog. With a log file, all messages go there, instead of syslog.
// Checkpoints and servers are not trusted, and a program that reads a broken file may ask for its
// bytes a million times: what is said is always printable, and only so many lines per second, but
// for what can be said only once.

#pragma once

#include <fmt/core.h>
#include <spdlog/fwd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace ckptfs {

// Says which messages may pass: at most kMostPerSecond in each second. Belongs to one thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kMostPerSecond = 20;

  // Whether a message at `now` may pass. Times do not go backwards.
  bool Admits(Clock::time_point now);

  // How many messages did not pass in the seconds before that of `now`; each is counted once.
  uint64_t TakeLeftOut(Clock::time_point now);

 private:
  bool IsInWindow(Clock::time_point now) const;

  Clock::time_point window_;  // When the second began in which messages are counted.
  uint64_t admitted_ = 0;
  uint64_t left_out_ = 0;
};

// Where messages go. There is one at a time. All methods may be called by several threads at once.
class Log {
 public:
  enum class Level : uint8_t {
    kError,    // Something failed.
    kWarning,  // Something will not be as expected.
    kNotice,   // What the user has asked for and cannot learn otherwise. Not limited in number.
    kInfo,     // Mounted, unmounted.
    kDebug,    // Each request. Not limited in number.
  };

  // Says errors and warnings on standard error.
  Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

  // From now on says what is as important as `least` or more.
  void SetLeast(Level least);

  // From now on appends all messages to the file at `path`, one line each with date and process. It
  // is made with mode 0600 if it is missing. Throws Error.
  void OpenFile(const std::string& path);

  // From now on says nothing on standard error, but, without a log file, to syslog.
  void LeaveTerminal();

  // From now on says what libfuse has to say, too, until the log is destroyed.
  void ListenToFuse();

  // Says `text`, a sentence in lower case and without a full stop. Never throws: what cannot be
  // said is left out.
  void Say(Level level, std::string_view text) noexcept;

  // Says a text that is formatted as by fmt::format.
  template <typename... Args>
  void Error(fmt::format_string<Args...> format, Args&&... args) {
    Say(Level::kError, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Warning(fmt::format_string<Args...> format, Args&&... args) {
    Say(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Notice(fmt::format_string<Args...> format, Args&&... args) {
    Say(Level::kNotice, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Info(fmt::format_string<Args...> format, Args&&... args) {
    Say(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  class Sink;

  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace ckptfs
