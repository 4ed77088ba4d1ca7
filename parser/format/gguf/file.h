// The tensors of one file.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/dtype.h"
#include "parser/checkpoint.h"
#include "parser/format/gguf/header.h"
#include "parser/io/byte_source.h"

namespace ckptfs::gguf {

// Adds the tensors of `file`, which has that header, to `checkpoint`. A tensor that cannot be read
// gets an error and a warning. Throws Error if no tensor can be read, or if data of one lie beyond
// the end of the file.
void AddTensors(const ByteSourcePtr& file, const GgufHeader& header, uint64_t alignment,
                Budget& budget, Checkpoint& checkpoint);

// Adds the metadata of the file and of the model.
void AddAnnotations(GgufHeader header, uint64_t alignment, std::vector<Annotation>& annotations);

// Throws Error if the layout of a part may have an alignment that is not in its header: gguf-py
// applies the alignment in the first part of a model to all parts.
void CheckAlignment(const GgufHeader& header, uint64_t file_size);

// Reads a single file, which may be a part of a model.
Checkpoint ReadAlone(const ByteSourcePtr& file, GgufHeader header, Budget& budget);

// A type of ggml. Besides plain types there are some thirty that store a row in blocks of 32 to 256
// numbers of a few bits each with common scales. A block is never split between rows.
struct StoredType {
  std::string_view name;  // "Q4_K".
  uint32_t number;        // In the file.
  unsigned elements;      // Of a block; 1 of plain types.
  unsigned bytes;         // Of a block.
  Dtype dtype;            // kOpaque: of blocks.
};

// Returns the type `number`; null for numbers that ggml has removed (4, 5, 31 to 33, 36 to 38),
// added after August 2026, or that its forks use.
const StoredType* StoredTypeOf(uint32_t number);

}  // namespace ckptfs::gguf
