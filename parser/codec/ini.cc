#include "parser/codec/ini.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs::ini {
namespace {

constexpr std::string_view kBlanksOfPython = " \t\r\f\v";

std::string_view Trimmed(std::string_view text) { return Trim(text, kBlanksOfPython); }

std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool IsComment(std::string_view line) { return line.starts_with('#') || line.starts_with(';'); }

// Returns the name and the value of a line; nothing if it is not a setting.
std::optional<std::pair<std::string, std::string_view>> SettingOf(std::string_view line) {
  const size_t delimiter = line.find_first_of("=:");
  if (delimiter == std::string_view::npos) return std::nullopt;
  const std::string_view name = Trimmed(line.substr(0, delimiter));
  if (name.empty()) return std::nullopt;
  return std::pair(ToLower(name), Trimmed(line.substr(delimiter + 1)));
}

}  // namespace

Sections Read(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  Sections sections;
  Section* section = nullptr;
  std::string* value = nullptr;  // Of the last setting.
  size_t indent = 0;             // Of the last setting.
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view whole = TakeLine(text);
    const std::string_view line = Trimmed(whole);
    if (line.empty() || IsComment(line)) continue;
    const size_t blanks = whole.find_first_not_of(kBlanksOfPython);
    if (value != nullptr && blanks > indent) {
      value->append("\n").append(line);
      continue;
    }
    if (line.starts_with('[') && line.find(']') != std::string_view::npos) {
      section = &sections[std::string(Trimmed(line.substr(1, line.rfind(']') - 1)))];
      value = nullptr;
      continue;
    }
    const auto setting = SettingOf(line);
    if (!setting) Fail(EBADMSG, "line {} is neither a section nor a setting", number);
    if (section == nullptr) Fail(EBADMSG, "line {} is a setting before the first section", number);
    value = &(*section)[setting->first];
    *value = setting->second;
    indent = blanks;
  }
  return sections;
}

Section ReadValue(std::string_view value) {
  Section section;
  while (!value.empty()) {
    const auto setting = SettingOf(Trimmed(TakeLine(value)));
    if (setting) section[setting->first] = setting->second;
  }
  return section;
}

std::string_view Find(const Section& section, std::string_view name) {
  const auto found = section.find(name);
  return found == section.end() ? std::string_view() : std::string_view(found->second);
}

std::vector<std::string> SplitWords(std::string_view line) {
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
      if (i + 1 == line.size()) Fail(EINVAL, "trailing backslash");
      // In double quotes, a backslash escapes only quotes and backslashes.
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
  if (quote != 0) Fail(EINVAL, "unclosed quotation mark");
  return words;
}

}  // namespace ckptfs::ini
