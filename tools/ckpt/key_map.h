// Renamed keys: "s/^model\.//".

#pragma once

#include <regex>
#include <string>
#include <string_view>

namespace ckptfs::ckpt {

// A substitution as of sed(1), with the regular expressions of ECMAScript: s/EXPRESSION/TEXT/FLAGS,
// with any character for "/", "&" and "\1" in the text, and the flags g and i.
class KeyMap {
 public:
  // An empty `text` changes no key. Throws Error(EINVAL).
  explicit KeyMap(std::string_view text);

  // Throws Error(EFBIG) if the key is too long.
  std::string operator()(const std::string& key) const;

 private:
  bool is_empty_ = true;
  std::regex expression_;
  std::string replacement_;
  std::regex_constants::match_flag_type flags_ = std::regex_constants::match_default;
};

}  // namespace ckptfs::ckpt
