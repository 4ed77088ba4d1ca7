#include "fs/suggestion.h"

#include <algorithm>
#include <array>
#include <string>

namespace ckptfs {
namespace {

constexpr size_t kLongest = 64;

std::string Normalized(std::string_view word) {
  std::string text(word);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return text;
}

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  if (a.size() > kLongest || b.size() > kLongest) return kLongest + 1;
  // Rows of the table for prefixes of `a`: of the one before, of the last one, and of this one.
  std::array<std::array<size_t, kLongest + 1>, 3> rows = {};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& last = rows[(i + 2) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], rows[(i + 1) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known) {
  const std::string normal = Normalized(word);
  // A third of the letters may be wrong; the beginning of a word counts as near.
  constexpr size_t kShortestBeginning = 3;
  size_t least = normal.size() / 3 + 1;
  std::string_view nearest;
  for (const std::string_view candidate : known) {
    const bool is_beginning = normal.size() >= kShortestBeginning && candidate.starts_with(normal);
    const size_t distance = is_beginning ? std::min<size_t>(1, candidate.size() - normal.size())
                                         : EditDistance(normal, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace ckptfs
