#include "fs/secrets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/io/location.h"

namespace ckptfs {
namespace {

// A terminal returns lines of up to 4095 bytes and drops the rest of longer ones.
constexpr size_t kMostTyped = 4096;

// Opens the controlling terminal if this process is in its foreground; else the result is invalid.
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

// Blocks signals, then turns the echo off. The destructor reverts both, in reverse order.
class NoEcho {
 public:
  explicit NoEcho(int terminal) : terminal_(terminal) {
    const sigset_t blocked = Blocked();
    ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
    if (::tcgetattr(terminal_, &before_) != 0) return;
    silent_ = before_;
    silent_.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    silent_.c_lflag |= ICANON | ISIG | ECHONL;
    is_active_ = ::tcsetattr(terminal_, TCSAFLUSH, &silent_) == 0;
  }
  NoEcho(const NoEcho&) = delete;
  NoEcho& operator=(const NoEcho&) = delete;

  // If Ctrl-C has ended the caller, the shell may already have set the terminal, which then stays.
  // SIGTTOU would stop a background process that sets a terminal.
  ~NoEcho() {
    const sigset_t output = SetOf({SIGTTOU});
    ::pthread_sigmask(SIG_BLOCK, &output, nullptr);
    termios now = {};
    if (is_active_ && ::tcgetattr(terminal_, &now) == 0 && now.c_lflag == silent_.c_lflag) {
      ::tcsetattr(terminal_, TCSAFLUSH, &before_);
    }
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  static sigset_t Blocked() { return SetOf({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}); }

  bool is_active() const { return is_active_; }

 private:
  const int terminal_;
  bool is_active_ = false;
  termios before_ = {};
  termios silent_ = {};
  sigset_t mask_before_ = {};
};

// Waits for input. Returns false if a blocked signal came before it.
bool WaitForTyping(const Fd& terminal, const Fd& signals) {
  std::array<pollfd, 2> events = {
      {{.fd = terminal.number(), .events = POLLIN}, {.fd = signals.number(), .events = POLLIN}}};
  while (::poll(events.data(), events.size(), -1) < 0) {
    if (errno != EINTR) FailErrno("cannot wait for the terminal");
  }
  return events[1].revents == 0;
}

// Reads a line into `text`. Returns its length without the end of the line, or -1 after a signal.
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
  Fail(EKEYREJECTED, "passphrase too long (maximum {} bytes)", text.size() - 1);
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
  const sigset_t blocked = NoEcho::Blocked();
  const Fd signals(::signalfd(-1, &blocked, SFD_CLOEXEC));
  if (signals.number() < 0) FailErrno("cannot wait for signals");
  SecretBytes typed(kMostTyped);
  ssize_t length = -1;
  // Repeat after a signal that has not ended this process, such as Ctrl-Z and fg.
  while (length < 0) {
    const NoEcho no_echo(terminal.number());
    if (!no_echo.is_active()) FailErrno("cannot hide what is typed");
    Show(terminal, question);
    length = ReadLine(terminal, signals, typed.bytes());
  }
  if (length == 0) return nullptr;
  return std::make_unique<SecretBytes>(typed.bytes().first(static_cast<size_t>(length)));
}

namespace {

constexpr size_t kKeySize = 32;                   // Bytes.
constexpr size_t kMostOfFile = size_t{64} << 10;  // Bytes.
constexpr size_t kFirstBuffer = size_t{4} << 10;  // Bytes: locked memory is scarce.
constexpr std::string_view kKeyVariable = "CKPTFS_KEY";
constexpr std::string_view kPassphraseVariable = "CKPTFS_PASSPHRASE";

std::shared_ptr<const Secret> Make(Secret::Kind kind, std::span<const std::byte> bytes,
                                   std::string origin) {
  return std::make_shared<Secret>(
      Secret{.kind = kind, .bytes = SecretBytes(bytes), .origin = std::move(origin)});
}

// Reads a file. Intermediate buffers are wiped.
SecretBytes ReadAll(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (file.number() < 0) FailErrno("cannot open it");
  SecretBytes read(kFirstBuffer);
  size_t size = 0;
  while (true) {
    if (size == read.bytes().size()) {
      if (size > kMostOfFile) Fail(EFBIG, "has more than {} bytes", kMostOfFile);
      SecretBytes larger(std::min(4 * size, kMostOfFile + 1));
      std::ranges::copy(read.bytes(), larger.bytes().begin());
      read = std::move(larger);
    }
    const ssize_t n = ::read(file.number(), &read.bytes()[size], read.bytes().size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot read it");
    if (n == 0) return SecretBytes(std::as_const(read).bytes().first(size));
    size += static_cast<size_t>(n);
  }
}

std::shared_ptr<const Secret> ReadKeyFile(const std::string& path) {
  const std::string origin = fmt::format("key_file {}", path);
  try {
    const SecretBytes bytes = ReadAll(path);
    if (const size_t size = bytes.bytes().size(); size != kKeySize) {
      Fail(EBADMSG, "invalid key size (found {} bytes, expected {})", size, kKeySize);
    }
    return Make(Secret::Kind::kKey, bytes.bytes(), origin);
  } catch (const Error& e) {
    throw WithContext(origin, e);
  }
}

// Editors end the last line, but a passphrase has no end of line.
std::shared_ptr<const Secret> ReadPassphraseFile(const std::string& path) {
  const std::string origin = fmt::format("passphrase_file {}", path);
  try {
    const SecretBytes read = ReadAll(path);
    auto text = read.bytes();
    while (!text.empty() && (text.back() == std::byte{'\n'} || text.back() == std::byte{'\r'})) {
      text = text.first(text.size() - 1);
    }
    if (text.empty()) Fail(EBADMSG, "the passphrase is empty");
    return Make(Secret::Kind::kPassphrase, text, origin);
  } catch (const Error& e) {
    throw WithContext(origin, e);
  }
}

// Wipes a variable from the environment: /proc/PID/environ then has zeros in its place. An empty
// variable counts as unset. The environment may contain a variable twice.
std::optional<SecretBytes> TakeVariable(std::string_view name) {
  std::optional<SecretBytes> taken;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(name) || text.substr(name.size(), 1) != "=") continue;
    const auto value = text.substr(name.size() + 1);
    if (!taken && !value.empty()) taken.emplace(std::as_bytes(std::span(value)));
    ::explicit_bzero(*entry + name.size() + 1, value.size());
  }
  ::unsetenv(std::string(name).c_str());
  return taken;
}

std::optional<unsigned> DigitOf(std::byte character) {
  const auto c = std::to_integer<unsigned>(character);
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::shared_ptr<const Secret> KeyOfDigits(std::span<const std::byte> digits) {
  if (digits.size() != 2 * kKeySize) {
    Fail(EINVAL, "{}: needs {} hexadecimal digits, got {} characters", kKeyVariable, 2 * kKeySize,
         digits.size());
  }
  SecretBytes key(kKeySize);
  for (size_t i = 0; i < kKeySize; ++i) {
    const auto high = DigitOf(digits[2 * i]);
    const auto low = DigitOf(digits[2 * i + 1]);
    if (!high || !low) {
      Fail(EINVAL, "{}: needs {} hexadecimal digits, but character {} is not one", kKeyVariable,
           2 * kKeySize, 2 * i + (high ? 2 : 1));
    }
    key.bytes()[i] = static_cast<std::byte>(*high << 4U | *low);
  }
  return Make(Secret::Kind::kKey, key.bytes(), std::string(kKeyVariable));
}

}  // namespace

Secrets::Secrets(const Options& options) : checkpoint_(Redacted(options.source)) {
  const auto key = TakeVariable(kKeyVariable);
  const auto passphrase = TakeVariable(kPassphraseVariable);
  if (!options.key_file.empty()) {
    option_ = "key_file";
    secret_ = ReadKeyFile(options.key_file);
  } else if (!options.passphrase_file.empty()) {
    option_ = "passphrase_file";
    secret_ = ReadPassphraseFile(options.passphrase_file);
  } else if (key && passphrase) {
    Fail(EINVAL, "{} and {} are mutually exclusive", kKeyVariable, kPassphraseVariable);
  } else if (key) {
    secret_ = KeyOfDigits(key->bytes());
  } else if (passphrase) {
    secret_ =
        Make(Secret::Kind::kPassphrase, passphrase->bytes(), std::string(kPassphraseVariable));
  }
}

std::shared_ptr<const Secret> Secrets::Get(bool takes_passphrase) {
  is_needed_ = true;
  if (secret_ == nullptr && takes_passphrase && !has_asked_) {
    has_asked_ = true;
    const auto typed = AskAtTerminal(
        Printable(fmt::format("passphrase for {} (empty: mount without it): ", checkpoint_)));
    if (typed != nullptr) {
      secret_ = Make(Secret::Kind::kPassphrase, typed->bytes(), "the terminal");
    }
  }
  return secret_;
}

}  // namespace ckptfs
