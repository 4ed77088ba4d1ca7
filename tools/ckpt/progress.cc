#include "tools/ckpt/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tools/ckpt/output.h"

namespace ckptfs::ckpt {
namespace {

// A line that is lost is no error.
void Draw(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

Progress::Progress(uint64_t total)
    : total_(total), is_shown_(::isatty(STDERR_FILENO) != 0), drawn_(start_) {}

Progress::~Progress() {
  if (is_shown_) Draw("\r\x1b[K");
}

void Progress::Add(uint64_t bytes) {
  const uint64_t done = done_ += bytes;
  if (!is_shown_) return;
  const Clock::time_point now = Clock::now();
  {
    constexpr std::chrono::milliseconds kInterval(100);
    MutexLock lock(mutex_);
    if (now - drawn_ < kInterval) return;
    drawn_ = now;
  }
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done) / seconds;
  const double left = static_cast<double>(total_ - std::min(done, total_)) / std::max(rate, 1.0);
  Draw(fmt::format("\r{:3.0f}%  {} of {}, {}/s, {:.0f} s left\x1b[K",
                   100 * static_cast<double>(done) / static_cast<double>(std::max(total_, done)),
                   SizeText(done), SizeText(total_), SizeText(static_cast<uint64_t>(rate)), left));
}

}  // namespace ckptfs::ckpt
