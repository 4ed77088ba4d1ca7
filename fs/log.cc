#include "fs/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <span>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs {
namespace {

// The maximum length of a message, in bytes. Names may be as long as the checkpoint.
constexpr size_t kMostText = 4096;

// Returns `text` printable, and truncated with an ellipsis if it is too long.
std::string Shown(std::string_view text) {
  if (text.size() <= kMostText) return Printable(text);
  constexpr std::string_view kEllipsis = "…";
  return Printable(utf8::Truncate(text, kMostText - kEllipsis.size())).append(kEllipsis);
}

int ToSyslog(Log::Level level) {
  switch (level) {
    case Log::Level::kError:
      return LOG_ERR;
    case Log::Level::kWarning:
      return LOG_WARNING;
    case Log::Level::kNotice:
      return LOG_NOTICE;
    case Log::Level::kInfo:
      return LOG_INFO;
    case Log::Level::kDebug:
      break;
  }
  return LOG_DEBUG;
}

// Returns the time in UTC, as in RFC 3339.
std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  std::array<char, sizeof "-2147483648-01-01T00:00:00Z"> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// In one write, so that lines of several threads or processes do not mix.
void WriteLine(int file, const std::string& line) {
  [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
}

}  // namespace

bool RateLimit::IsInWindow(Clock::time_point now) const {
  return now - window_ < std::chrono::seconds(1);
}

bool RateLimit::Admits(Clock::time_point now) {
  if (!IsInWindow(now)) {
    window_ = now;
    admitted_ = 0;
  }
  const bool is_admitted = admitted_ < kMostPerSecond;
  ++(is_admitted ? admitted_ : dropped_);
  return is_admitted;
}

uint64_t RateLimit::TakeDropped(Clock::time_point now) {
  return IsInWindow(now) ? 0 : std::exchange(dropped_, 0);
}

Log::~Log() {
  ReportDropped(RateLimit::Clock::time_point::max());
  ::closelog();
}

void Log::SetLevel(Level least) { least_ = least; }

void Log::OpenFile(const std::string& path) {
  // O_NONBLOCK is for a pipe without a reader.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  Fd file(::open(path.c_str(), kFlags, S_IRUSR | S_IWUSR));
  if (file.number() < 0) FailErrno("{}: cannot open the log file", path);
  const MutexLock lock(mutex_);
  file_ = std::move(file);
}

void Log::LeaveTerminal() {
  const MutexLock lock(mutex_);
  if (file_.number() < 0) ::openlog(program_, LOG_NDELAY | LOG_PID, LOG_DAEMON);
  is_on_terminal_ = false;
}

void Log::Write(Level level, std::string_view text) noexcept try {
  if (level > least_) return;
  const MutexLock lock(mutex_);
  if (level != Level::kNotice && level != Level::kDebug) {
    const auto now = RateLimit::Clock::now();
    ReportDropped(now);
    if (!limit_.Admits(now)) return;
  }
  WriteLocked(level, text);
} catch (const std::exception&) {  // Out of memory: the message is dropped.
}

void Log::ReportDropped(RateLimit::Clock::time_point now) {
  if (const uint64_t count = limit_.TakeDropped(now); count != 0) {
    WriteLocked(Level::kWarning, fmt::format("{} more messages dropped", count));
  }
}

void Log::WriteLocked(Level level, std::string_view text) const {
  const std::string printable = Shown(text);
  const char* mark = level == Level::kWarning ? "warning: " : "";
  if (is_on_terminal_) {
    WriteLine(STDERR_FILENO, fmt::format("{}: {}{}\n", program_, mark, printable));
  }
  if (file_.number() >= 0) {
    WriteLine(file_.number(),
              fmt::format("{} {}[{}]: {}{}\n", Now(), program_, ::getpid(), mark, printable));
  } else if (!is_on_terminal_) {
    ::syslog(ToSyslog(level), "%s", printable.c_str());
  }
}

void LogWarnings(Log& log, const std::string& name, const std::vector<std::string>& warnings) {
  constexpr size_t kMost = 10;
  for (const std::string& warning : std::span(warnings).first(std::min(kMost, warnings.size()))) {
    log.Warning("{}: {}", name, warning);
  }
  if (warnings.size() > kMost) log.Warning("{}: {} more warnings", name, warnings.size() - kMost);
}

}  // namespace ckptfs
