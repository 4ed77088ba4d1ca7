// Ctrl-C at a passphrase prompt must not leave a terminal behind that shows nothing of what is
// typed. So signals that would end or stop us are blocked while the echo is off, and waited for
// together with the typing; when one is pending, the terminal is made right, and then the signal is
// let through and does what it always does. No handler is needed, and no state that one could see.

#include "fs/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <span>

#include "parser/base/error.h"
#include "parser/base/fd.h"

namespace ckptfs {
namespace {

// A terminal gives lines of up to 4095 bytes and drops the rest of longer ones.
constexpr size_t kMostTyped = 4096;

// Opens the controlling terminal if we are in its foreground; the descriptor is none if not.
Fd OpenTerminal() {
  if (::isatty(STDIN_FILENO) == 0) return Fd();
  Fd terminal(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
  const bool is_ours = terminal.number() >= 0 && ::tcgetpgrp(terminal.number()) == ::getpgrp();
  return is_ours ? std::move(terminal) : Fd();
}

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set = {};
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

// Blocks signals and then turns the echo off; undoes both, in that order reversed.
class Silence {
 public:
  explicit Silence(int terminal) : terminal_(terminal) {
    const sigset_t blocked = Blocked();
    ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
    if (::tcgetattr(terminal_, &before_) != 0) return;
    silent_ = before_;
    silent_.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    silent_.c_lflag |= ICANON | ISIG | ECHONL;
    is_silent_ = ::tcsetattr(terminal_, TCSAFLUSH, &silent_) == 0;
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

  // If Ctrl-C has ended our caller, the shell may be back already, and the terminal be as the shell
  // wants it: then it stays so. SIGTTOU would stop whoever sets a terminal from the background.
  ~Silence() {
    const sigset_t output = SetOf({SIGTTOU});
    ::pthread_sigmask(SIG_BLOCK, &output, nullptr);
    termios now = {};
    if (is_silent_ && ::tcgetattr(terminal_, &now) == 0 && now.c_lflag == silent_.c_lflag) {
      ::tcsetattr(terminal_, TCSAFLUSH, &before_);
    }
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  static sigset_t Blocked() { return SetOf({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}); }

  bool is_silent() const { return is_silent_; }

 private:
  const int terminal_;
  bool is_silent_ = false;
  termios before_ = {};
  termios silent_ = {};
  sigset_t mask_before_ = {};
};

// Waits for typing. Returns false if a blocked signal came before it.
bool WaitForTyping(const Fd& terminal, const Fd& signals) {
  std::array<pollfd, 2> events = {
      {{.fd = terminal.number(), .events = POLLIN}, {.fd = signals.number(), .events = POLLIN}}};
  while (::poll(events.data(), events.size(), -1) < 0) {
    if (errno != EINTR) FailErrno("cannot wait for the terminal");
  }
  return events[1].revents == 0;
}

// Reads a line into `text`. Returns its length without the end of the line, or -1 if a signal came.
ssize_t ReadLine(const Fd& terminal, const Fd& signals, std::span<std::byte> text) {
  size_t length = 0;
  while (length < text.size()) {
    if (!WaitForTyping(terminal, signals)) return -1;
    const ssize_t n = ::read(terminal.number(), &text[length], text.size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot read from the terminal");
    if (n == 0) return static_cast<ssize_t>(length);
    length += static_cast<size_t>(n);
    if (text[length - 1] == std::byte{'\n'}) return static_cast<ssize_t>(length - 1);
  }
  Fail(EKEYREJECTED, "the passphrase that was typed is longer than {} bytes", text.size() - 1);
}

void Show(const Fd& terminal, std::string_view text) {
  if (::write(terminal.number(), text.data(), text.size()) < 0) {
    FailErrno("cannot write to the terminal");
  }
}

}  // namespace

bool HasTerminal() { return OpenTerminal().number() >= 0; }

std::unique_ptr<SecretBytes> AskAtTerminal(std::string_view question) {
  const Fd terminal = OpenTerminal();
  if (terminal.number() < 0) return nullptr;
  const sigset_t blocked = Silence::Blocked();
  const Fd signals(::signalfd(-1, &blocked, SFD_CLOEXEC));
  if (signals.number() < 0) FailErrno("cannot wait for signals");
  SecretBytes typed(kMostTyped);
  ssize_t length = -1;
  // Again after a signal that has not ended us: the user is back from Ctrl-Z.
  while (length < 0) {
    const Silence silence(terminal.number());
    if (!silence.is_silent()) FailErrno("cannot hide what is typed");
    Show(terminal, question);
    length = ReadLine(terminal, signals, typed.bytes());
  }
  if (length == 0) return nullptr;
  return std::make_unique<SecretBytes>(typed.bytes().first(static_cast<size_t>(length)));
}

}  // namespace ckptfs
