#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/format/tensordict/consolidated.h"
#include "parser/format/tensordict/directory.h"
#include "parser/format/tensordict/tree.h"
#include "parser/io/simple_sources.h"
#include "tests/support/memory_folder.h"
#include "tests/support/reading.h"

namespace {

// A TensorDict whose files are the parts of `input` between NULs: its meta.json, that of the
// collection "a" in it, and the content of all other files.
ckptfs::Checkpoint ReadFolder(const std::string& input, ckptfs::Budget& budget) {
  const size_t first = std::min(input.find('\0'), input.size());
  const size_t second = std::min(input.find('\0', first + 1), input.size());
  const std::string inner = input.substr(first, second - first);
  const std::string data = input.substr(second);
  const ckptfs::MemoryFolder folder(
      {{"meta.json", input.substr(0, first)},
       {"t.memmap", data},
       {"t.shape.memmap", data},
       {"other.pickle", data},
       {"pickle.pkl", data},
       {"a/meta.json", inner.empty() ? "" : inner.substr(1)},
       {"a/t.memmap", data},
       {"a/other.pickle", data},
       {"a/pickle.pkl", data},
       {"_tensordict/meta.json", inner.empty() ? "" : inner.substr(1)},
       {"0/meta.json", inner.empty() ? "" : inner.substr(1)}});
  return ckptfs::tensordict::ReadTree(*ckptfs::tensordict::MakeDirectory(folder, budget), budget);
}

}  // namespace

// The first byte selects the kind of the input. The oracle: it is a checkpoint whose tensors can be
// read, or throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    auto budget = ckptfs::Budget::ForFile(size);
    const ckptfs::Checkpoint checkpoint =
        data[0] == 'c' ? ckptfs::tensordict::ReadConsolidated(
                             std::make_shared<ckptfs::MemorySource>(input), budget)
                       : ReadFolder(input, budget);
    ckptfs::Validate(checkpoint);
    ckptfs::ReadTensors(checkpoint.root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
