#include "tools/ckpt/target.h"

#include <cerrno>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/text.h"
#include "parser/io/simple_sources.h"
#include "tools/ckpt/cast.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {

std::vector<NamedTensor> NamedTensorsOf(const Checkpoint& checkpoint) {
  std::vector<NamedTensor> tensors;
  std::unordered_set<std::string_view, SecretHash> keys;
  for (const Member& member : checkpoint.root.members) {
    const auto* const tensor = std::get_if<Tensor>(&member.content);
    if (tensor == nullptr) continue;
    if (!keys.insert(member.key.text).second) {
      Fail(ENOTUNIQ, "there are two tensors {}", Quoted(member.key.text));
    }
    tensors.push_back({.key = member.key.text, .tensor = *tensor});
  }
  return tensors;
}

Segment SegmentOf(uint64_t offset, std::string text) {
  return {.offset = offset, .source = std::make_shared<MemorySource>(std::move(text)), .crc = 0};
}

Segment SegmentOf(uint64_t offset, const Tensor& tensor) {
  return {.offset = offset, .source = std::make_shared<Slice>(tensor.data), .crc = 0};
}

void FailDtype(std::string_view target, const std::string& key, const Tensor& tensor) {
  const Tensor numbers = Dequantized(tensor);
  std::string advice;
  if (!HasNumbers(numbers)) {
    advice = "; " + NoNumbersText(numbers);
  } else if (IsFloat(numbers.dtype)) {
    advice = "; --dtype may help";
  }
  Fail(ENOTSUP, "{} has no dtype {} for {}{}", target, DtypeNameOf(tensor), Quoted(key), advice);
}

}  // namespace ckptfs::ckpt
