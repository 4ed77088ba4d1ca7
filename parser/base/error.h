// The one error type of the project. Includes nothing of ours.

#pragma once

#include <fmt/core.h>

#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ckptfs {

// Returns `text` as one line without terminal commands: control characters, marks that change the
// direction of text, and invalid UTF-8 are replaced by '?'.
std::string Printable(std::string_view text);

// Why an operation failed: an errno value for the kernel and a sentence for the user, in lower case
// and without a full stop: "subject: what is wrong (found X, expected Y)". The sentence is made
// printable. Threads may share copies.
class Error : public std::exception {
 public:
  Error(int code, std::string_view message)
      : code_(code), message_(std::make_shared<const std::string>(Printable(message))) {}

  const char* what() const noexcept override { return message_->c_str(); }

  // EBADMSG for malformed input, ENOTSUP for valid but unsupported input, EFBIG and EOVERFLOW for
  // input beyond the limits, ESTALE for a source that has changed, EREMOTEIO for a server that
  // fails, else the errno of the failing system call.
  int code() const { return code_; }

 private:
  int code_;
  std::shared_ptr<const std::string> message_;  // So that copying does not throw.
};

// Throws an Error whose message is formatted as by fmt::format.
template <typename... Args>
[[noreturn]] void Fail(int code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Returns the description of `code`: "No such file or directory".
std::string ErrnoText(int code);

// Throws an Error for the current errno: "<message>: No such file or directory".
template <typename... Args>
[[noreturn]] void FailErrno(fmt::format_string<Args...> format, Args&&... args) {
  const int code = errno;
  throw Error(code, fmt::format(format, std::forward<Args>(args)...) + ": " + ErrnoText(code));
}

// Whether `code` means resource exhaustion (ENOMEM, EMFILE, ENFILE), a server that fails, or a read
// that was cancelled: the file may be intact, so a format that goes on after a corrupt part must
// not go on then.
bool IsTransient(int code);

// Whether `e` ends the reading of a whole checkpoint, of which corrupt parts are skipped: a limit
// is exceeded (EFBIG), or the error is transient.
bool IsFatal(const Error& e);

// Returns the message of `error`; empty if there is no error.
std::string_view MessageOf(const std::optional<Error>& error);

// Returns `e` with "<context>: " before its message.
Error WithContext(std::string_view context, const Error& e);

// Returns untrusted text for a message: in single quotes, shortened, printable.
std::string Quoted(std::string_view text);

}  // namespace ckptfs
