// How formats plug in.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "parser/byte_source.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// What detection may look at, fetched once per mount.
struct Probe {
  uint64_t size;                    // Of the whole file, in bytes.
  std::span<const std::byte> head;  // Its first bytes, kProbeHead at most.
  std::span<const std::byte> tail;  // Its last bytes, kProbeTail at most.
};

constexpr size_t kProbeHead = 4096;
constexpr size_t kProbeTail = 66'000;  // The end record of a zip lies in there, if there is one.

// A checkpoint format. Each file in parser/format/ defines one.
struct Format {
  std::string_view name;

  // Whether this looks like the format. Does no I/O and does not throw.
  bool (*matches)(const Probe& probe);

  // Reads the headers; never reads tensor data. The caller validates the result.
  // Throws Error.
  Checkpoint (*parse)(const ByteSourcePtr& source);
};

// All formats, in the order in which they are tried. See parser/meson.build.
std::span<const Format* const> Formats();

}  // namespace ckptfs
