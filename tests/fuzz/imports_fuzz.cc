// The oracle: the imports of any file can be read within the budget; errors are in the result.

#include <cstdint>
#include <memory>
#include <string>

#include "parser/base/budget.h"
#include "parser/io/simple_sources.h"
#include "parser/view/imports.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto source = std::make_shared<const ckptfs::MemorySource>(
      std::string(reinterpret_cast<const char*>(data), size));
  auto budget = ckptfs::Budget::ForFile(size);
  ckptfs::ReadOptions options;
  options.budget = &budget;
  const ckptfs::Imports imports = ckptfs::ReadImports(source, options);
  for (const ckptfs::Import& import : imports.list) {
    if (import.global.name.empty()) __builtin_trap();
  }
  return 0;
}
