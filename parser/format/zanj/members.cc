#include "parser/format/zanj/members.h"

#include <string_view>
#include <unordered_map>

#include "parser/secret_hash.h"

namespace ckptfs::zanj {

std::pmr::vector<json::Members::Member> MembersOf(json::Node object, Budget& budget) {
  std::pmr::vector<json::Members::Member> found(&budget);
  std::pmr::unordered_map<std::string_view, size_t, SecretHash> places(&budget);
  json::Members members(object);
  while (const auto member = members.Next()) {
    const auto [place, is_new] = places.emplace(member->key, found.size());
    if (is_new) {
      found.push_back(*member);
    } else {
      found[place->second].value = member->value;
    }
  }
  return found;
}

}  // namespace ckptfs::zanj
