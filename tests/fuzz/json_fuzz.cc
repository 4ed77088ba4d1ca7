#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/json_document.h"
#include "parser/codec/json_reader.h"
#include "parser/io/simple_sources.h"

namespace {

using nlohmann::json;

// Whether ckptfs rejects valid JSON, or a part that nlohmann_json ignores: it stops at a NUL.
bool IsOurRule(std::string_view message) {
  for (const std::string_view rule :
       {"occurs twice", "is nested more than", "byte order mark", "NUL character", "memory"}) {
    if (message.find(rule) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

// The oracle: both nlohmann_json and ckptfs read the same JSON, or both reject it, except for what
// the rules of ckptfs reject. The dialect of Python accepts all that the strict one does.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const ckptfs::MemorySource source(text);
  const auto read = [&](ckptfs::json::Dialect dialect, ckptfs::json::Copy& copy) {
    auto budget = ckptfs::Budget::ForFile(size);
    ckptfs::json::Read(source, 0, size, budget, copy, dialect);
  };
  const json theirs = json::parse(text, nullptr, false);
  ckptfs::json::Copy copy;
  try {
    read(ckptfs::json::Dialect::kStrict, copy);
    if (theirs.is_discarded() || json::parse(copy.json()) != theirs) std::abort();
    ckptfs::json::Copy copy_of_python;
    read(ckptfs::json::Dialect::kPython, copy_of_python);
    if (copy_of_python.json() != copy.json()) std::abort();
  } catch (const ckptfs::Error& e) {
    if (!theirs.is_discarded() && !IsOurRule(e.what())) std::abort();
    try {
      ckptfs::json::Copy other;
      read(ckptfs::json::Dialect::kPython, other);
    } catch (const ckptfs::Error&) {
      return 0;
    }
  }
  return 0;
}
