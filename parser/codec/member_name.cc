#include "parser/codec/member_name.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "parser/base/error.h"

namespace ckptfs {

void CheckMemberName(std::string_view name) {
  constexpr size_t kMost = 4096;  // PATH_MAX: a longer one could not be unpacked anywhere.
  const auto check = [&](bool is_good, std::string_view why) {
    if (!is_good) Fail(EBADMSG, "name {} {}", Quoted(name), why);
  };
  if (name.size() > kMost) {
    Fail(EFBIG, "name of {} bytes (maximum {})", name.size(), kMost);
  }
  check(!name.empty(), "is empty");
  check(name.find('\0') == std::string_view::npos, "contains a NUL");
  check(name.find('\\') == std::string_view::npos, "contains a backslash");
  check(!name.starts_with('/'), "begins with a slash");
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    check(!part.empty(), "has an empty part");
    check(part != "." && part != "..", "has a part that is '.' or '..'");
    begin = end + 1;
  }
}

}  // namespace ckptfs
