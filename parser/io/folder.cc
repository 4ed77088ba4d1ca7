#include "parser/io/folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "parser/base/error.h"

namespace ckptfs {

bool IsPlainName(std::string_view name) {
  using std::string_view_literals::operator""sv;
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\\0"sv) == std::string_view::npos;
}

std::string Listed(std::span<const std::string> names) {
  constexpr size_t kMost = 5;
  std::string list;
  for (const std::string& name : names.first(std::min(names.size(), kMost))) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", Quoted(name));
  }
  if (names.size() > kMost) list += fmt::format(" and {} more", names.size() - kMost);
  return list;
}

}  // namespace ckptfs
