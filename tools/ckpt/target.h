// The files that a conversion writes, which consist of bytes of other sources.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs::ckpt {

// A text of little-endian numbers, which the headers of files consist of.
class LittleEndian {
 public:
  // Appends the last `bytes` bytes of `value`, 8 at most.
  void Add(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xFFU);
  }
  void Add(std::string_view text) { text_ += text; }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Bytes that begin at `offset` of a file.
struct Segment {
  uint64_t offset = 0;
  ByteSourcePtr source;  // All of it.
  uint32_t crc = 0;      // The CRC32 of the bytes, once they are written.
};

// A file to be written.
struct PlannedFile {
  std::string path;
  std::vector<std::string> links;  // Further paths of it: hard links.
  std::vector<Segment> segments;

  // If not null, returns the rest of the file, once all other segments are written.
  std::function<std::vector<Segment>(const std::vector<Segment>& written)> finish;
};

// A tensor under the key that it gets.
struct NamedTensor {
  const std::string& key;
  const Tensor& tensor;
};

// Returns the tensors of the root in their order. Throws Error(ENOTUNIQ) if two have the same key.
std::vector<NamedTensor> NamedTensorsOf(const Checkpoint& checkpoint);

// Returns a segment of the bytes of `text` or of `tensor`.
Segment SegmentOf(uint64_t offset, std::string text);
Segment SegmentOf(uint64_t offset, const Tensor& tensor);

// Throws Error(ENOTSUP): the target, which is called `target`, has no such dtype.
[[noreturn]] void FailDtype(std::string_view target, const std::string& key, const Tensor& tensor);

// Each of these returns the files of a checkpoint whose root has all tensors with their whole keys.
// The checkpoint must outlive the result. Throws Error: ENOTSUP if the target cannot have a tensor,
// EFBIG if a header would be too large.

// safetensors. If `shard` is not 0, files have at most so many bytes of tensors, unless a tensor
// alone has more, and there is an index, as of the libraries of the hub.
std::vector<PlannedFile> PlanSafetensors(Checkpoint& checkpoint, const std::string& path,
                                         uint64_t shard);

// A file of numpy.savez.
std::vector<PlannedFile> PlanNpz(const Checkpoint& checkpoint, const std::string& path);

// GGUF with tensors of plain types, and nothing about the model but an unknown architecture.
std::vector<PlannedFile> PlanGguf(const Checkpoint& checkpoint, const std::string& path);

// A file of tensorizer, as its write_state_dict writes: with the CRC32 of each tensor.
std::vector<PlannedFile> PlanTensorizer(const Checkpoint& checkpoint, const std::string& path);

// A folder of .npy files. Their names are the keys, percent-encoded where those are no file names.
std::vector<PlannedFile> PlanNpy(const Checkpoint& checkpoint, const std::string& folder);

// A folder as TensorDict.memmap writes it: keys are split at dots. Tied tensors are hard links.
// Uses up the checkpoint.
std::vector<PlannedFile> PlanTensorDict(Checkpoint& checkpoint, const std::string& folder);

}  // namespace ckptfs::ckpt
