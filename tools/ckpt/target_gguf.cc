// See parser/format/gguf/header.h for the layout.

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/io/simple_sources.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/target.h"

namespace ckptfs::ckpt {
namespace {

constexpr uint64_t kGgufVersion = 3;
constexpr uint64_t kAlignment = 32;  // Of tensors, in bytes, without another one in the metadata.
constexpr uint64_t kGgufString = 8;  // The type of a value.

std::optional<uint64_t> TypeOf(const Tensor& tensor) {
  if (tensor.sizes != nullptr) return {};
  switch (tensor.dtype) {
    case Dtype::kFloat32:
      return 0;
    case Dtype::kFloat16:
      return 1;
    case Dtype::kInt8:
      return 24;
    case Dtype::kInt16:
      return 25;
    case Dtype::kInt32:
      return 26;
    case Dtype::kInt64:
      return 27;
    case Dtype::kFloat64:
      return 28;
    case Dtype::kBfloat16:
      return 30;
    default:
      return {};
  }
}

void AddText(LittleEndian& out, std::string_view text) {
  out.Add(text.size(), sizeof(uint64_t));
  out.Add(text);
}

uint64_t Padded(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

void AddInfo(LittleEndian& out, const std::string& key, const Tensor& tensor, uint64_t offset) {
  constexpr size_t kMostName = 63;  // Bytes, and dimensions: those of ggml.
  constexpr size_t kMostDimensions = 4;
  const auto type = TypeOf(tensor);
  if (!type) FailDtype("GGUF", key, tensor);
  if (key.empty() || key.size() > kMostName || key.find('\0') != std::string::npos) {
    Fail(ENOTSUP, "GGUF cannot have the key {}, but 1 to {} bytes; --map may help", Quoted(key),
         kMostName);
  }
  if (tensor.shape.size() > kMostDimensions) {
    Fail(ENOTSUP, "GGUF cannot have {}: found {} dimensions, expected at most {}", Quoted(key),
         tensor.shape.size(), kMostDimensions);
  }
  AddText(out, key);
  out.Add(tensor.shape.size(), sizeof(uint32_t));
  for (size_t i = tensor.shape.size(); i > 0; --i) out.Add(tensor.shape[i - 1], sizeof(uint64_t));
  out.Add(*type, sizeof(uint32_t));
  out.Add(offset, sizeof(uint64_t));
}

}  // namespace

std::vector<PlannedFile> PlanGguf(const Checkpoint& checkpoint, const std::string& path) {
  LittleEndian infos;
  std::vector<Segment> segments(1);
  uint64_t end = 0;
  const std::vector<NamedTensor> tensors = NamedTensorsOf(checkpoint);
  for (const auto& [key, tensor] : tensors) {
    AddInfo(infos, key, tensor, end);
    if (tensor.data.length > 0) segments.push_back(SegmentOf(end, tensor));
    end = Padded(end + tensor.data.length);
  }
  LittleEndian head;
  head.Add("GGUF");
  head.Add(kGgufVersion, sizeof(uint32_t));
  head.Add(tensors.size(), sizeof(uint64_t));
  head.Add(1, sizeof(uint64_t));
  AddText(head, "general.architecture");  // Readers demand it.
  head.Add(kGgufString, sizeof(uint32_t));
  AddText(head, "unknown");
  head.Add(infos.text());
  std::string text = head.text();
  text.resize(Padded(text.size()));
  for (Segment& segment : segments) segment.offset += text.size();
  // The last tensor is padded, too.
  const uint64_t padding = text.size() + end - segments.back().offset -
                           (segments.size() == 1 ? 0 : segments.back().source->size());
  segments.push_back({.offset = text.size() + end - padding,
                      .source = std::make_shared<Zeros>(padding),
                      .crc = 0});
  segments.front() = SegmentOf(0, std::move(text));
  std::vector<PlannedFile> files;
  files.push_back({.path = path, .links = {}, .segments = std::move(segments), .finish = nullptr});
  return files;
}

}  // namespace ckptfs::ckpt
