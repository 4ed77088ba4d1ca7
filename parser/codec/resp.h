// The protocol of Redis, RESP 2.
//
// A command is an array of texts with their lengths, so that any byte may be in a
// key. A reply begins with a line whose first character is its kind:
//
//   +OK                      a word
//   -NOPERM no permissions   an error; its first word is its kind
//   :42                      a number
//   $5 CRLF hello CRLF       a value of five bytes; $-1 if it is missing
//
// Arrays (*) are not read: no command of ckptfs is answered by one. A server may send anything,
// so the length of a line is limited; the caller limits the length of a value.

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ckptfs::resp {

// The end of a line, and of a value.
constexpr std::string_view kEnd = "\r\n";

// The longest line of an answer, its end included.
constexpr size_t kLongestLine = 8192;

// The line that an answer begins with.
struct Head {
  enum class Kind { kWord, kError, kNumber, kValue, kNothing };

  Kind kind = Kind::kNothing;
  std::string_view text;  // Of a word or an error. Points into what was read.
  int64_t number = 0;     // Or, of a value, how many bytes follow; kEnd follows them.
  size_t size = 0;        // Of the line, its end included.
};

// Reads the line that `bytes` begin with. Nothing if they do not reach its end. Throws
// Error(EPROTO) if it is invalid, or longer than kLongestLine.
std::optional<Head> ReadHead(std::string_view bytes);

// Appends a command, which is its name and what it is about, to `out`.
void AppendCommand(std::initializer_list<std::string_view> words, std::string& out);

// An error that names another server of a cluster: the key is there.
struct Redirect {
  bool is_once = false;  // For this one command, and ASKING before it; the next comes here again.
  uint16_t slot = 0;     // Of the key.
  std::string host;      // Empty if it is the redirecting server.
  uint16_t port = 0;
};

// How many slots the keys of a cluster are spread over.
constexpr uint16_t kSlots = 16384;

// Parses the text of an error. Returns nothing if it is not a redirect; throws Error(EPROTO) if it
// is one that makes no sense.
std::optional<Redirect> ReadRedirect(std::string_view error);

// Returns the slot that `key` is in: what is in its first pair of braces counts alone, if there is
// anything.
uint16_t SlotOf(std::string_view key);

}  // namespace ckptfs::resp
