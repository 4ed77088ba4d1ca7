#include "tools/ckpt/key_map.h"

#include <cerrno>
#include <vector>

#include "parser/base/error.h"

namespace ckptfs::ckpt {
namespace {

// Splits at `separator`, unless a backslash is before it.
std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (text[i + 1] != separator) parts.back() += text[i];
      parts.back() += text[++i];
    } else if (text[i] == separator) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

}  // namespace

KeyMap::KeyMap(std::string_view text) : is_empty_(text.empty()) {
  if (is_empty_) return;
  const auto refuse = [&](std::string_view why) {
    Fail(EINVAL, "--map {}: {} (expected s/EXPRESSION/TEXT/)", Quoted(text), why);
  };
  if (text.size() < 4 || text[0] != 's') refuse("no substitution");
  const std::vector<std::string> parts = Split(text.substr(2), text[1]);
  if (parts.size() != 3) refuse("no substitution");
  auto syntax = std::regex_constants::ECMAScript;
  flags_ = std::regex_constants::format_sed | std::regex_constants::format_first_only;
  for (const char flag : parts[2]) {
    if (flag == 'g') {
      flags_ = std::regex_constants::format_sed;
    } else if (flag == 'i') {
      syntax |= std::regex_constants::icase;
    } else {
      refuse("unknown flag");
    }
  }
  try {
    expression_ = std::regex(parts[0], syntax);
  } catch (const std::regex_error& error) {
    refuse(error.what());
  }
  replacement_ = parts[1];
}

std::string KeyMap::operator()(const std::string& key) const {
  if (is_empty_) return key;
  constexpr size_t kMost = 4096;  // The search is recursive: a long key would exhaust the stack.
  if (key.size() > kMost) Fail(EFBIG, "--map: key of more than {} bytes: {}", kMost, Quoted(key));
  return std::regex_replace(key, expression_, replacement_, flags_);
}

}  // namespace ckptfs::ckpt
