// Compresses by all methods of zip archives, in usual and in rare forms.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "parser/layer/decompressor.h"

namespace ckptfs {

// The blocks of a deflated stream.
struct DeflateOptions {
  int level = 9;           // Of zlib; 0: stored blocks.
  bool is_fixed = false;   // Blocks with the fixed Huffman codes.
  size_t flush_after = 0;  // Bytes after which the stream is flushed, if not 0.
};

std::string Deflate(std::string_view data, const DeflateOptions& options);

// Returns one block of any length, of literals with eight bits each.
std::string DeflateInOneBlock(std::string_view data);

// Blocks are of 100 kB.
std::string Bzip2(std::string_view data);

// With the properties before it, as in a zip archive, and optionally an end marker.
std::string Lzma(std::string_view data, bool has_marker = true);

// Compresses `data` in the simplest form.
std::string Compress(Coding coding, std::string_view data);

// Returns `compressed`, which decodes to `size` bytes, in the middle of a source.
Compressed CompressedOf(Coding coding, std::string compressed, uint64_t size);

}  // namespace ckptfs
