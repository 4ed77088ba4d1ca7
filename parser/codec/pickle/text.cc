#include "parser/codec/pickle/text.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs::pickle {
namespace {

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Consumes `count` digits from the front of `text`.
uint32_t TakeDigits(std::string_view& text, size_t count, int base) {
  const std::string_view digits = text.substr(0, count);
  const auto number = ParseNumber<uint32_t>(digits, base);
  if (digits.size() != count || !number) {
    Fail(EBADMSG, "{} is not a number of {} digits of base {}", Quoted(digits), count, base);
  }
  text.remove_prefix(count);
  return *number;
}

// Consumes one escape from the front of `text`, which follows a backslash. An unknown escape is
// kept verbatim, as in Python.
void TakeStringEscape(std::string_view& text, std::pmr::string& out) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"";
  constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  const char letter = text.front();
  if (letter >= '0' && letter <= '7') {
    const auto last =
        std::find_if_not(text.begin(), text.begin() + std::min<ptrdiff_t>(3, std::ssize(text)),
                         [](char c) { return c >= '0' && c <= '7'; });
    const uint32_t byte = TakeDigits(text, static_cast<size_t>(last - text.begin()), 8);
    out.push_back(static_cast<char>(byte & 0xffU));
    return;
  }
  text.remove_prefix(1);
  if (letter == 'x') {
    out.push_back(static_cast<char>(TakeDigits(text, 2, 16)));
  } else if (const size_t known = kLetters.find(letter); known != std::string_view::npos) {
    out.push_back(kMeanings[known]);
  } else {
    out.push_back('\\');
    out.push_back(letter);
  }
}

bool StartsWithSurrogate(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  return text.size() >= 3 && byte(0) == 0xed && byte(1) >= 0xa0 && byte(1) <= 0xbf &&
         byte(2) >= 0x80 && byte(2) <= 0xbf;
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view line) {
  const std::string_view digits = line.starts_with('-') ? line.substr(1) : line;
  const bool is_padded = digits.size() > 1 && digits.front() == '0';
  if (digits.empty() || is_padded || !std::ranges::all_of(digits, IsDigit)) {
    Fail(EBADMSG, "{} is not a decimal number", Quoted(line));
  }
  return ParseNumber<int64_t>(line);
}

double ParseFloat(std::string_view line) {
  const auto number = ParseNumber<double>(line);
  if (!number || line.ends_with(')')) {
    Fail(EBADMSG, "{} is not a floating-point number that fits in 64 bits", Quoted(line));
  }
  return *number;
}

uint64_t ParseMemoIndex(std::string_view line) {
  const auto index = ParseNumber<uint64_t>(line);
  if (!index) Fail(EBADMSG, "{} is not a memo index", Quoted(line));
  return *index;
}

std::string_view ParseString(std::string_view line, std::pmr::string& scratch) {
  const char quote = line.empty() ? '\0' : line.front();
  if (line.size() < 2 || line.back() != quote || (quote != '\'' && quote != '"')) {
    Fail(EBADMSG, "{} is not in quotes", Quoted(line));
  }
  std::string_view text = line.substr(1, line.size() - 2);
  if (text.find('\\') == std::string_view::npos) return text;
  scratch.clear();
  while (!text.empty()) {
    const size_t plain = std::min(text.find('\\'), text.size());
    scratch += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    text.remove_prefix(1);
    if (text.empty()) Fail(EBADMSG, "{} ends in the middle of an escape", Quoted(line));
    TakeStringEscape(text, scratch);
  }
  return scratch;
}

std::string_view ParseUnicode(std::string_view line, std::pmr::string& scratch) {
  const auto is_plain = [](char c) { return IsAscii(c) && c != '\\'; };
  if (std::ranges::all_of(line, is_plain)) return line;
  scratch.clear();
  std::string_view text = line;
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    scratch += std::string_view(utf8::Encode(static_cast<unsigned char>(c)));
    if (c != '\\' || text.empty()) continue;
    const char letter = text.front();
    text.remove_prefix(1);
    if (letter != 'u' && letter != 'U') {  // Not an escape: keep both characters.
      scratch += std::string_view(utf8::Encode(static_cast<unsigned char>(letter)));
      continue;
    }
    scratch.pop_back();
    const uint32_t code = TakeDigits(text, letter == 'u' ? 4 : 8, 16);
    if (code > 0x10ffff) Fail(EBADMSG, "U+{:X} is not a character", code);
    scratch += std::string_view(utf8::Encode(code));
  }
  return scratch;
}

bool IsText(std::string_view bytes) {
  while (true) {
    const auto* first = std::ranges::find_if_not(bytes, IsAscii);
    bytes.remove_prefix(static_cast<size_t>(first - bytes.begin()));
    if (bytes.empty()) return true;
    const utf8::Character next = utf8::Decode(bytes);
    if (!next.is_valid && !StartsWithSurrogate(bytes)) return false;
    bytes.remove_prefix(next.is_valid ? next.length : 3);
  }
}

// Pickles of protocols 0 to 2 name globals as Python 2 did, even those that Python 3 writes, and
// every unpickler of Python 3 translates them. The tables contain the names that occur in data;
// Python (_compat_pickle) also translates modules for windows, mail and web servers.

namespace {

struct Renamed {
  GlobalNames from;
  GlobalNames to;
};

constexpr Renamed kGlobals[] = {
    {{"__builtin__", "basestring"}, {"builtins", "str"}},
    {{"__builtin__", "intern"}, {"sys", "intern"}},
    {{"__builtin__", "long"}, {"builtins", "int"}},
    {{"__builtin__", "reduce"}, {"functools", "reduce"}},
    {{"__builtin__", "unichr"}, {"builtins", "chr"}},
    {{"__builtin__", "unicode"}, {"builtins", "str"}},
    {{"__builtin__", "xrange"}, {"builtins", "range"}},
    {{"UserDict", "IterableUserDict"}, {"collections", "UserDict"}},
    {{"exceptions", "StandardError"}, {"builtins", "Exception"}},
    {{"itertools", "ifilter"}, {"builtins", "filter"}},
    {{"itertools", "ifilterfalse"}, {"itertools", "filterfalse"}},
    {{"itertools", "imap"}, {"builtins", "map"}},
    {{"itertools", "izip"}, {"builtins", "zip"}},
    {{"itertools", "izip_longest"}, {"itertools", "zip_longest"}},
};

struct RenamedModule {
  std::string_view from;
  std::string_view to;
};

constexpr RenamedModule kModules[] = {
    {"__builtin__", "builtins"},
    {"copy_reg", "copyreg"},
    {"cPickle", "pickle"},
    {"cStringIO", "io"},
    {"exceptions", "builtins"},
    {"ConfigParser", "configparser"},
    {"Queue", "queue"},
    {"StringIO", "io"},
    {"UserDict", "collections"},
    {"UserList", "collections"},
    {"UserString", "collections"},
    {"_abcoll", "collections.abc"},
    {"commands", "subprocess"},
    {"repr", "reprlib"},
    {"thread", "_thread"},
};

}  // namespace

GlobalNames Python3Names(GlobalNames names) {
  for (const Renamed& renamed : kGlobals) {
    if (renamed.from.module == names.module && renamed.from.name == names.name) return renamed.to;
  }
  for (const RenamedModule& renamed : kModules) {
    if (renamed.from == names.module) return {renamed.to, names.name};
  }
  return names;
}

}  // namespace ckptfs::pickle
