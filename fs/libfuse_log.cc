#include "fs/libfuse_log.h"

#include <fuse_log.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <string_view>

namespace ckptfs {
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
