// Compresses, in all ways that zip archives know and some that are rare.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "parser/layer/decompressor.h"

namespace ckptfs {

// The blocks of a deflated stream.
struct DeflateOptions {
  int level = 9;           // As of zlib; 0: blocks that are stored.
  bool is_fixed = false;   // Blocks with the fixed Huffman codes.
  size_t flush_after = 0;  // Bytes after which the stream is flushed, if not 0.
};

std::string Deflate(std::string_view data, const DeflateOptions& options);

// Returns one block, whatever the length, of literals and a code that costs eight bits for each.
std::string DeflateInOneBlock(std::string_view data);

// Blocks are of 100 kB.
std::string Bzip2(std::string_view data);

// With its properties before it, as in a zip archive; ends with a marker, or not.
std::string Lzma(std::string_view data, bool has_marker = true);

// Returns what `data` is compressed to, in the simplest way.
std::string Compress(Coding coding, std::string_view data);

// Returns `compressed` as what decodes to `size` bytes, in the middle of a source.
Compressed CompressedOf(Coding coding, std::string compressed, uint64_t size);

}  // namespace ckptfs
