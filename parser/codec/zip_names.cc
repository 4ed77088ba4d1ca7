#include "parser/codec/zip_names.h"

#include <algorithm>

namespace ckptfs::zip {
namespace {

char Folded(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool FoldedLess(std::string_view a, std::string_view b) {
  return std::ranges::lexicographical_compare(a, b, {}, Folded, Folded);
}

}  // namespace

// FNV-1a.
uint64_t FoldedHash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(Folded(c));
    hash *= 0x100000001b3;
  }
  return hash;
}

bool IsSameFolded(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, Folded, Folded);
}

bool IsLess(uint64_t hash_of_a, std::string_view a, uint64_t hash_of_b, std::string_view b) {
  if (hash_of_a != hash_of_b) return hash_of_a < hash_of_b;
  return IsSameFolded(a, b) ? a < b : FoldedLess(a, b);
}

}  // namespace ckptfs::zip
