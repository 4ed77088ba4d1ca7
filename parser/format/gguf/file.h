// One file, from its bytes to tensors.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/gguf/header.h"
#include "parser/io/byte_source.h"

namespace ckptfs::gguf {

// Adds the tensors of `file`, which has that header, to `checkpoint`. One that cannot be is shown
// as such, with a warning; if none can be, or where the bytes of one are not in the file, throws
// Error.
void AddTensors(const ByteSourcePtr& file, const Header& header, uint64_t alignment, Budget& budget,
                Checkpoint& checkpoint);

// Adds what the file tells of itself and of the model.
void AddAnnotations(Header header, uint64_t alignment, std::vector<Annotation>& annotations);

// Throws Error if the file may have been laid out with an alignment that it does not tell. gguf-py
// lays out all parts of a model with that of the model, but only the first part says it.
void CheckAlignment(const Header& header, uint64_t file_size);

// Reads a file that stands for itself, also where it is one of several.
Checkpoint ReadAlone(const ByteSourcePtr& file, Header header, Budget& budget);

}  // namespace ckptfs::gguf
