#include "parser/base/error.h"

#include <algorithm>
#include <system_error>

#include "parser/base/text.h"

namespace ckptfs {
namespace {

bool CommandsATerminal(char32_t c) {
  const bool is_control = c < 0x20 || (c >= 0x7f && c < 0xa0);
  const bool is_line_end = c == 0x2028 || c == 0x2029;
  const bool is_direction = c == 0x061c || c == 0x200e || c == 0x200f ||
                            (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  return is_control || is_line_end || is_direction;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const utf8::Character next = utf8::Decode(text);
    if (next.is_valid && !CommandsATerminal(next.code)) {
      printable += text.substr(0, next.length);
    } else {
      printable += '?';
    }
    text.remove_prefix(next.length);
  }
  return printable;
}

std::string ErrnoText(int code) { return std::generic_category().message(code); }

bool IsTransient(int code) {
  constexpr int kTransient[] = {ECANCELED, ECONNREFUSED, ECONNRESET,  EHOSTUNREACH,
                                EINTR,     EMFILE,       ENETUNREACH, ENFILE,
                                ENOMEM,    EPROTO,       EREMOTEIO,   ETIMEDOUT};
  return std::ranges::count(kTransient, code) != 0;
}

bool IsFatal(const Error& e) { return e.code() == EFBIG || IsTransient(e.code()); }

std::string_view MessageOf(const std::optional<Error>& error) {
  return error ? error->what() : std::string_view();
}

Error WithContext(std::string_view context, const Error& e) {
  return {e.code(), fmt::format("{}: {}", context, e.what())};
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 100;  // Bytes.
  if (text.size() <= kMost) return fmt::format("'{}'", Printable(text));
  return fmt::format("'{}...'", Printable(utf8::Truncate(text, kMost)));
}

}  // namespace ckptfs
