#include "fs/log.h"

#include <fcntl.h>
#include <fuse_log.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs {
namespace {

constexpr const char* kName = "ckptfs";

// Bytes of a message. Names of a checkpoint may be as long as the checkpoint.
constexpr size_t kMostText = 4096;

// `text` as a message shows it: printable, and what is longer ends with an ellipsis.
std::string Shown(std::string_view text) {
  if (text.size() <= kMostText) return Printable(text);
  constexpr std::string_view kEllipsis = "…";
  size_t cut = kMostText - kEllipsis.size();
  const size_t most = cut;
  while (cut > most - 4 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80) --cut;
  return Printable(text.substr(0, cut)).append(kEllipsis);
}

// spdlog has no level between warning and info, so those from there on are one lower with it.
spdlog::level::level_enum ToSpdlog(Log::Level level) {
  switch (level) {
    case Log::Level::kError:
      return spdlog::level::err;
    case Log::Level::kWarning:
      return spdlog::level::warn;
    case Log::Level::kNotice:
      return spdlog::level::info;
    case Log::Level::kInfo:
      return spdlog::level::debug;
    case Log::Level::kDebug:
      break;
  }
  return spdlog::level::trace;
}

int ToSyslog(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return LOG_ERR;
  if (level == spdlog::level::warn) return LOG_WARNING;
  if (level == spdlog::level::info) return LOG_NOTICE;
  return level == spdlog::level::debug ? LOG_INFO : LOG_DEBUG;
}

spdlog::level::level_enum FromFuse(fuse_log_level level) {
  if (level <= FUSE_LOG_ERR) return spdlog::level::err;
  if (level == FUSE_LOG_WARNING) return spdlog::level::warn;
  return ToSpdlog(level == FUSE_LOG_DEBUG ? Log::Level::kDebug : Log::Level::kInfo);
}

// The time in UTC, as in RFC 3339.
std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  std::array<char, sizeof "-2147483648-01-01T00:00:00Z"> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// libfuse passes nothing to its callback by which it could find a Log, but spdlog knows each logger
// by its name.
__attribute__((format(printf, 2, 0))) void SayForFuse(fuse_log_level level, const char* format,
                                                      va_list arguments) {
  std::array<char, 512> text = {};
  if (std::vsnprintf(text.data(), text.size(), format, arguments) < 0) return;
  std::string_view line = text.data();
  while (line.ends_with('\n')) line.remove_suffix(1);
  if (const auto logger = spdlog::get(kName)) logger->log(FromFuse(level), line);
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

// Its base class takes a mutex around each method.
class Log::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  ~Sink() override {
    TellLeftOut(RateLimit::Clock::time_point::max());
    closelog();
  }

  void UseFile(Fd file) {
    const std::lock_guard lock(mutex_);
    file_ = std::move(file);
  }

  void LeaveTerminal() {
    const std::lock_guard lock(mutex_);
    if (file_.number() < 0) openlog(kName, LOG_NDELAY | LOG_PID, LOG_DAEMON);
    is_on_terminal_ = false;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const auto now = RateLimit::Clock::now();
    if (IsLimited(message.level)) {
      TellLeftOut(now);
      if (!limit_.Admits(now)) return;
    }
    Write(message.level, std::string_view(message.payload.data(), message.payload.size()));
  }

  void flush_() override {}

  static bool IsLimited(spdlog::level::level_enum level) {
    return level != ToSpdlog(Level::kNotice) && level != ToSpdlog(Level::kDebug);
  }

  void TellLeftOut(RateLimit::Clock::time_point now) {
    if (const uint64_t count = limit_.TakeDropped(now); count != 0) {
      Write(spdlog::level::warn, fmt::format("{} more messages were left out", count));
    }
  }

  void Write(spdlog::level::level_enum level, std::string_view text) const {
    const std::string printable = Shown(text);
    const char* mark = level == spdlog::level::warn ? "warning: " : "";
    if (is_on_terminal_) {
      WriteLine(STDERR_FILENO, fmt::format("{}: {}{}\n", kName, mark, printable));
    }
    if (file_.number() >= 0) {
      WriteLine(file_.number(),
                fmt::format("{} {}[{}]: {}{}\n", Now(), kName, ::getpid(), mark, printable));
    } else if (!is_on_terminal_) {
      ::syslog(ToSyslog(level), "%s", printable.c_str());
    }
  }

  // In one write, so that lines of several threads or processes do not mix.
  static void WriteLine(int file, const std::string& line) {
    [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
  }

  RateLimit limit_;
  Fd file_;
  bool is_on_terminal_ = true;
};

Log::Log()
    : sink_(std::make_shared<Sink>()), logger_(std::make_shared<spdlog::logger>(kName, sink_)) {
  SetLevel(Level::kWarning);
  logger_->set_error_handler([](const std::string&) {});
  spdlog::register_logger(logger_);
}

Log::~Log() {
  fuse_set_log_func(nullptr);
  spdlog::drop(kName);
}

void Log::SetLevel(Level least) { logger_->set_level(ToSpdlog(least)); }

void Log::OpenFile(const std::string& path) {
  // O_NONBLOCK is for a pipe without a reader.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  Fd file(::open(path.c_str(), kFlags, S_IRUSR | S_IWUSR));
  if (file.number() < 0) FailErrno("{}: cannot open the log file", path);
  sink_->UseFile(std::move(file));
}

void Log::LeaveTerminal() { sink_->LeaveTerminal(); }

void Log::CaptureFuse() { fuse_set_log_func(SayForFuse); }

void Log::Write(Level level, std::string_view text) noexcept {
  logger_->log(ToSpdlog(level), text);
}

}  // namespace ckptfs
