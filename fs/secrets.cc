#include "fs/secrets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "fs/terminal.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/open.h"

namespace ckptfs {
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

// Reads all of a file; what lies in between is wiped.
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
      Fail(EBADMSG, "a key has {} bytes, but this file has {}", kKeySize, size);
    }
    return Make(Secret::Kind::kKey, bytes.bytes(), origin);
  } catch (const Error& e) {
    throw WithContext(origin, e);
  }
}

// An editor ends the last line, but a passphrase is a text without an end of line.
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

// Takes a variable out of the environment: what /proc/PID/environ shows of it is zeros from now on.
// One that is empty is as one that is not there. Variables may be there twice.
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
      Fail(EINVAL, "{}: needs {} hexadecimal digits, but character {} is none", kKeyVariable,
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
    Fail(EINVAL, "the environment has both {} and {}, but a checkpoint has one of them",
         kKeyVariable, kPassphraseVariable);
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
