// Files of safetensors for tests.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "parser/io/byte_source.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {

// Returns the file with that header and that data.
inline std::string SafetensorsFile(std::string_view header, std::string_view data) {
  std::string file;
  for (unsigned i = 0; i < sizeof(uint64_t); ++i) {
    file += static_cast<char>(uint64_t{header.size()} >> (8 * i) & 0xFFU);
  }
  return file.append(header).append(data);
}

// Returns the entry of a tensor, which is the first `size` bytes of the data, in a header: a member
// of a JSON object, in which `shape` is inserted verbatim.
inline std::string SafetensorsEntry(const std::string& name, const std::string& dtype,
                                    const std::string& shape, size_t size) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[0,)" + std::to_string(size) + "]}";
}

inline ByteSourcePtr Safetensors(std::string_view header, std::string_view data) {
  return std::make_shared<MemorySource>(SafetensorsFile(header, data));
}

}  // namespace ckptfs
