// Writes tar archives as tar does, and invalid ones.

#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>

namespace ckptfs {

// The fields of a header; the others are as tar writes them.
struct TarEntry {
  std::string name;
  char type = '0';
  std::string size;  // Instead of the right one.
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string prefix;
};

inline std::string TarPadded(const std::string& text) {
  return text + std::string((512 - text.size() % 512) % 512, '\0');
}

// A member with its header.
inline std::string TarMember(const TarEntry& entry, const std::string& data) {
  std::string header(512, '\0');
  const auto put = [&](size_t offset, const std::string& text) {
    header.replace(offset, text.size(), text);
  };
  put(0, entry.name);
  put(100, "0000644");
  put(124, entry.size.empty() ? fmt::format("{:011o}", data.size()) : entry.size);
  put(136, "00000000000");
  put(148, "        ");
  put(156, std::string(1, entry.type));
  put(257, entry.magic);
  put(345, entry.prefix);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + TarPadded(data);
}

inline std::string TarFile(const std::string& name, const std::string& data) {
  return TarMember({.name = name}, data);
}

inline const std::string kTarEnd(1024, '\0');

}  // namespace ckptfs
