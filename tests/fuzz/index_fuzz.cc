#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "parser/base/error.h"
#include "parser/format/huggingface/index.h"
#include "parser/io/folder.h"
#include "parser/io/simple_sources.h"

// The oracle: an input is an index with plain names of files, in which each tensor is found, or
// throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ckptfs::MemorySource file(std::string(reinterpret_cast<const char*>(data), size));
  try {
    auto budget = ckptfs::Budget::ForFile(size);
    const auto index = ckptfs::huggingface::ReadIndex(file, budget);
    if (!std::ranges::is_sorted(index.shards)) std::abort();
    if (!std::ranges::all_of(index.shards, ckptfs::IsPlainName)) std::abort();
    for (size_t i = 0; i < index.weights.size(); ++i) {
      const auto& weight = index.weights[i];
      if (index.Find(weight.name) != i || weight.shard >= index.shards.size()) std::abort();
    }
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
