#include "parser/codec/shell_words.h"

#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

std::vector<std::string> ShellWords(std::string_view line) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && IsBlank(c)) {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) words.emplace_back();
    is_in_word = true;
    if (c == '\\' && quote != '\'') {
      if (i + 1 == line.size()) Fail(EINVAL, "nothing follows the last backslash");
      // Between double quotes a backslash is only one before what would end or escape there.
      if (quote == '"' && line[i + 1] != '"' && line[i + 1] != '\\') words.back() += c;
      words.back() += line[++i];
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) Fail(EINVAL, "a quotation mark is not closed");
  return words;
}

}  // namespace ckptfs
