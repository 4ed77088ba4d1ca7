#include "parser/codec/pickle.h"

#include <fmt/core.h>

namespace ckptfs::pickle {

static_assert(sizeof(Value) == 16 && sizeof(Node) == 16 && sizeof(Object) == 56,
              "a checkpoint has some ten of these for each tensor");

bool IsGlobal(const Value& value, std::string_view module, std::string_view name) {
  if (value.kind != Kind::kGlobal) return false;
  const auto items = ItemsOf(value);
  return items[0].text() == module && items[1].text() == name;
}

std::string GlobalName(const Value& value) {
  const auto items = ItemsOf(value);
  return fmt::format("{}.{}", items[0].text(), items[1].text());
}

}  // namespace ckptfs::pickle
