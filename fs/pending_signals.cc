// The kernel says that a request is interrupted for any signal that its thread has, and says so
// once. Which signals wait for a thread is told by proc(5), as masks in which the lowest bit is
// signal 1.

#include "fs/pending_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#include "parser/base/fd.h"

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

// What proc(5) says of a thread. Allocates nothing, so that it cannot throw.
class Status {
 public:
  explicit Status(pid_t thread) noexcept {
    std::array<char, 32> path = {};
    std::snprintf(path.data(), path.size(), "/proc/%d/status", static_cast<int>(thread));
    const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) return;
    const ssize_t n = ::read(file.number(), buffer_.data(), buffer_.size());
    if (n > 0) text_ = {buffer_.data(), static_cast<size_t>(n)};
  }

  bool is_known() const { return !text_.empty(); }

  // What follows "\nNAME:\t", to the end of the line; empty if there is no such line.
  std::string_view Field(std::string_view name) const {
    for (size_t at = text_.find(name); at != std::string_view::npos;
         at = text_.find(name, at + 1)) {
      std::string_view rest = text_.substr(at + name.size());
      if (at == 0 || text_[at - 1] != '\n' || !rest.starts_with(":\t")) continue;
      rest.remove_prefix(2);
      return rest.substr(0, rest.find('\n'));
    }
    return {};
  }

  bool has_ended() const {
    const std::string_view state = Field("State");
    return state.starts_with('Z') || state.starts_with('X');
  }

  // Whether a signal waits for it by which it ends, or by which its user wants it to.
  bool has_wish_to_end() const {
    const uint64_t pending = (Mask("SigPnd") | Mask("ShdPnd")) & ~Mask("SigBlk");
    const uint64_t ignored = Mask("SigIgn");
    const uint64_t deadly = ~(ignored | Mask("SigCgt") | kHarmless);
    return (pending & ((kWanted & ~ignored) | deadly)) != 0;
  }

 private:
  uint64_t Mask(std::string_view name) const {
    const std::string_view text = Field(name);
    uint64_t mask = 0;
    std::from_chars(text.data(), text.data() + text.size(), mask, 16);
    return mask;
  }

  std::array<char, 8192> buffer_ = {};
  std::string_view text_;
};

}  // namespace

bool HasGivenUp(pid_t thread) noexcept {
  const Status status(thread);
  if (!status.is_known() || status.has_ended()) return true;
  return status.has_wish_to_end();
}

bool IsGone(pid_t thread) noexcept {
  if (thread <= 0) return false;  // It is in a namespace of its own.
  if (::kill(thread, 0) < 0 && errno == ESRCH) return true;
  const Status status(thread);
  return status.has_ended() || status.has_wish_to_end();
}

}  // namespace ckptfs
