// The order in which the names of members are looked up.

#pragma once

#include <cstdint>
#include <string_view>

namespace ckptfs::zip {

// The same for names that differ in case only.
uint64_t FoldedHash(std::string_view name);

// Whether two names are the same but for case.
bool IsSameFolded(std::string_view a, std::string_view b);

// The order of names, by their hashes first: those that differ in case only are neighbours.
bool IsLess(uint64_t hash_of_a, std::string_view a, uint64_t hash_of_b, std::string_view b);

}  // namespace ckptfs::zip
