// The format of ggml and llama.cpp (https://github.com/ggml-org/ggml, docs/gguf.md): a header with
// metadata of any size, and the tensors behind it; see gguf/header.h.
//
// Most tensors are quantised in blocks, for which neither NumPy nor PyTorch has a type. They are
// shown as the bytes that they are: rows of uint8, as the gguf package for Python shows them, with
// annotations that tell type and shape.
//
// We read what ggml does not: version 1, files of the other byte order, gaps and other orders of
// the data, more than four dimensions, long names, and types that ggml has given up or that are
// newer than this program, whose tensors are bytes up to the next one. What both refuse is said by
// the functions that check it.

#include <algorithm>
#include <span>

#include "parser/base/budget.h"
#include "parser/format.h"
#include "parser/format/gguf/file.h"
#include "parser/format/gguf/header.h"

namespace ckptfs {
namespace gguf {
namespace {

bool Matches(const Probe& probe) {
  return probe.head.size() >= kMagic.size() &&
         std::ranges::equal(probe.head.first(kMagic.size()), std::as_bytes(std::span(kMagic)));
}

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  Budget& budget = *options.budget;
  return ReadAlone(source.file, ReadHeader(*source.file, budget), budget);
}

}  // namespace
}  // namespace gguf

extern const Format gguf_format{.name = "gguf", .matches = gguf::Matches, .parse = gguf::Parse};

}  // namespace ckptfs
