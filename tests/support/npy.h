// Writes arrays as NumPy does, and invalid ones.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ckptfs {

struct NpyVersion {
  uint8_t major = 1;
  uint8_t minor = 0;
};

// An array whose header is `text`.
inline std::string NpyOf(std::string_view text, std::string_view data = "",
                         const NpyVersion& version = {}) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version.major);
  file += static_cast<char>(version.minor);
  const size_t bytes_of_length = version.major == 1 ? 2 : 4;
  for (size_t i = 0; i < bytes_of_length; ++i) {
    file += static_cast<char>((text.size() >> (8 * i)) & 0xFFU);
  }
  return file.append(text).append(data);
}

// The text of a header, of a type and a shape as Python spells them.
inline std::string NpyText(std::string_view descr, std::string_view shape,
                           std::string_view is_fortran = "False") {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': " + std::string(is_fortran) +
         ", 'shape': " + std::string(shape) + ", }\n";
}

// An array of a type and a shape as Python spells them.
inline std::string Npy(std::string_view descr, std::string_view shape, std::string_view data) {
  return NpyOf(NpyText(descr, shape), data);
}

}  // namespace ckptfs
