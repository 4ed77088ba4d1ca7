// A file that is opened when it is first read.

#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>

#include "parser/io/byte_source.h"

namespace ckptfs {

struct LazyFile {
  std::string name;     // For messages.
  uint64_t size = 0;    // As it was listed, in bytes.
  timespec modified{};  // The epoch if that is not known.
  bool is_remote = false;
  std::function<ByteSourcePtr()> open;  // Throws Error. Callable from any thread.
};

// Returns a source that calls `file.open` before the first read, and again after it has failed.
// Reads throw what it throws, and ESTALE if the opened file has another size.
ByteSourcePtr MakeLazy(LazyFile file);

}  // namespace ckptfs
