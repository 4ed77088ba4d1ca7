#include "parser/format/common/python_types.h"

#include <fmt/format.h>

#include "parser/base/json.h"

namespace ckptfs {

PythonTypes::Inside::Inside(std::string& pointer, std::string_view step)
    : pointer_(pointer), length_(pointer.size()) {
  pointer += '/';
  for (const char c : step) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
}

void PythonTypes::Tell(std::string_view type) {
  if (type.empty()) return;
  constexpr uint64_t kCopies = 3;  // It grows, and meta.json has it once more.
  budget_.Charge(kCopies * (pointer_.size() + type.size()));
  if (!types_.empty()) types_ += ',';
  json::AppendString(types_, pointer_);
  types_ += ':';
  json::AppendString(types_, type);
}

void PythonTypes::AddTo(Value& value) {
  if (!types_.empty())
    value.annotations.emplace_back("python_types", fmt::format("{{{}}}", types_));
}

}  // namespace ckptfs
