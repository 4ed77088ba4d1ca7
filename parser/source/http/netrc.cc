// Words, separated by blanks and ends of lines: "machine HOST login USER password PASSWORD", or
// "default" in place of the first two. A word may be in double quotes, with backslashes before
// characters that would have a meaning. "macdef" defines a macro up to the next empty line.

#include "parser/source/http/netrc.h"

#include <algorithm>
#include <utility>

namespace ckptfs::http {
namespace {

class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  // Returns nothing at the end.
  std::optional<std::string> Next() {
    SkipBlanks();
    while (rest_.starts_with('#')) {
      Skip(rest_.find('\n'));
      SkipBlanks();
    }
    if (rest_.empty()) return std::nullopt;
    return rest_.front() == '"' ? Quoted() : Plain();
  }

  void SkipMacro() { Skip(rest_.find("\n\n")); }

 private:
  static constexpr std::string_view kBlanks = " \t\r\n";

  void Skip(size_t count) { rest_.remove_prefix(std::min(count, rest_.size())); }
  void SkipBlanks() { Skip(rest_.find_first_not_of(kBlanks)); }

  std::string Plain() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(kBlanks));
    Skip(word.size());
    return std::string(word);
  }

  std::string Quoted() {
    std::string word;
    Skip(1);
    while (!rest_.empty() && rest_.front() != '"') {
      if (rest_.front() == '\\' && rest_.size() > 1) Skip(1);
      word += rest_.front();
      Skip(1);
    }
    Skip(1);
    return word;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<Login> FindLogin(std::string_view text, std::string_view host) {
  Words words(text);
  std::optional<Login> found;
  while (const auto word = words.Next()) {
    if (*word == "machine" || *word == "default") {
      if (found) break;
      if (*word == "default" || words.Next() == host) found.emplace();
    } else if (*word == "macdef") {
      words.SkipMacro();
    } else if (*word == "login" || *word == "password" || *word == "account") {
      std::string value = words.Next().value_or("");
      if (!found || *word == "account") continue;
      (*word == "login" ? found->user : found->password) = std::move(value);
    }
  }
  return found;
}

}  // namespace ckptfs::http
