// The kernel says that a request is interrupted for any signal that its thread has, and says so
// once. Which signals wait for a thread is told by proc(5), as masks in which the lowest bit is
// signal 1.

#include "fs/patience.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace ckptfs {
namespace {

constexpr uint64_t MaskOf(std::initializer_list<int> signals) {
  uint64_t mask = 0;
  for (const int signal : signals) mask |= uint64_t{1} << static_cast<unsigned>(signal - 1);
  return mask;
}

// By which users stop programs, whether these end by themselves or have a handler.
constexpr uint64_t kWanted = MaskOf({SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM});

// Nobody dies of these.
constexpr uint64_t kHarmless =
    MaskOf({SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU});

struct Signals {
  uint64_t pending = 0;  // For the thread or its process.
  uint64_t ignored = 0;
  uint64_t caught = 0;
};

}  // namespace

bool HasGivenUp(pid_t thread) {
  std::ifstream status(fmt::format("/proc/{}/status", thread));
  if (!status) return true;
  Signals signals;
  for (std::string line; std::getline(status, line);) {
    const size_t colon = line.find(":\t");
    if (colon == std::string::npos) continue;
    const std::string_view name = std::string_view(line).substr(0, colon);
    const std::string_view value = std::string_view(line).substr(colon + 2);
    uint64_t mask = 0;
    std::from_chars(value.data(), value.data() + value.size(), mask, 16);
    if (name == "SigPnd" || name == "ShdPnd") signals.pending |= mask;
    if (name == "SigIgn") signals.ignored = mask;
    if (name == "SigCgt") signals.caught = mask;
  }
  const uint64_t deadly = ~(signals.ignored | signals.caught | kHarmless);
  return (signals.pending & ((kWanted & ~signals.ignored) | deadly)) != 0;
}

}  // namespace ckptfs
