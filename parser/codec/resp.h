// The protocol of Redis, RESP 2.
//
// A command is an array of texts with their lengths, so that keys may contain any byte. A reply
// begins with a line whose first character is its kind:
//
//   +OK                      a word
//   -NOPERM no permissions   an error; its first word is its kind
//   :42                      a number
//   $5 CRLF hello CRLF       a value of five bytes; $-1 if it is missing
//
// Arrays (*) are not supported: they are replies to no command of ckptfs. The length of a line is
// limited; the caller limits the length of a value.

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

// The maximum length of a line of a reply, including its end.
constexpr size_t kLongestLine = 8192;

// The first line of a reply.
struct Head {
  enum class Kind { kWord, kError, kNumber, kValue, kNothing };

  Kind kind = Kind::kNothing;
  std::string_view text;  // Of a word or an error. Points into the input.
  int64_t number = 0;     // Or the length of a value in bytes; kEnd follows it.
  size_t size = 0;        // Of the line, including its end.
};

// Parses the first line of `bytes`. Returns nothing if it is incomplete. Throws Error(EPROTO) if it
// is invalid, or longer than kLongestLine.
std::optional<Head> ReadHead(std::string_view bytes);

// Appends a command, its name and its arguments, to `out`.
void AppendCommand(std::initializer_list<std::string_view> words, std::string& out);

// An error that redirects to the server of a cluster with the key.
struct Redirect {
  bool is_once = false;  // ASK: for this command only, after ASKING. Else MOVED.
  uint16_t slot = 0;     // Of the key.
  std::string host;      // Empty if it is the redirecting server.
  uint16_t port = 0;
};

// The number of slots of a cluster.
constexpr uint16_t kSlots = 16384;

// Parses the text of an error. Returns nothing if it is not a redirect; throws Error(EPROTO) if the
// redirect is malformed.
std::optional<Redirect> ReadRedirect(std::string_view error);

// Returns the slot of `key`, by the text in its first pair of braces unless that is empty, else by
// the whole key.
uint16_t SlotOf(std::string_view key);

}  // namespace ckptfs::resp
