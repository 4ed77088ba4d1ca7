// The protocol of Redis, RESP 2: what is said over a connection.
//
// A command is an array of texts, each of which says how long it is, so that any byte may be in a
// key. An answer begins with a line whose first character says what it is:
//
//   +OK                      a word
//   -NOPERM no permissions   an error; its first word is its kind
//   :42                      a number
//   $5 CRLF hello CRLF       a value of five bytes; $-1 is that there is none
//
// Arrays (*) are not read: no command that we send is answered by one. A server may say anything,
// so a line has a longest length; how long a value may be is for those to say who asked for it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ckptfs::resp {

// What ends a line, and a value.
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
// Error(EPROTO) if it is none, or longer than kLongestLine.
std::optional<Head> ReadHead(std::string_view bytes);

// Appends a command, which is its name and what it is about, to `out`.
void AppendCommand(std::initializer_list<std::string_view> words, std::string& out);

// An error that names another server of a cluster: the key is there.
struct Redirect {
  bool is_once = false;  // For this one command, and ASKING before it; the next comes here again.
  uint16_t slot = 0;     // Of the key.
  std::string host;      // Empty if it is that of the server that says so.
  uint16_t port = 0;
};

// How many slots the keys of a cluster are spread over.
constexpr uint16_t kSlots = 16384;

// Reads the text of an error. Nothing if it is no redirect; throws Error(EPROTO) if it is one that
// makes no sense.
std::optional<Redirect> ReadRedirect(std::string_view error);

// Returns the slot that `key` is in: what is in its first pair of braces counts alone, if there is
// anything.
uint16_t SlotOf(std::string_view key);

}  // namespace ckptfs::resp
