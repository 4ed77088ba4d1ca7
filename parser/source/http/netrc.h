// The file ~/.netrc, where programs find the user's passwords for hosts.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ckptfs::http {

struct Login {
  std::string user;
  std::string password;
};

// Returns what `text`, which is that of a netrc file, has for `host`, or else by default. The first
// entry counts. What is malformed is passed over.
std::optional<Login> FindLogin(std::string_view text, std::string_view host);

}  // namespace ckptfs::http
