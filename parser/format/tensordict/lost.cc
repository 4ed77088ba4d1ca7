#include "parser/format/tensordict/lost.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parser/damaged.h"
#include "parser/json.h"

namespace ckptfs::tensordict {

std::string PathOf(std::string_view path, std::string_view key) {
  constexpr size_t kMost = 256;  // Bytes.
  std::string whole(path);
  whole += key.substr(0, kMost);
  whole.resize(std::min(whole.size(), kMost));
  return whole;
}

Value Lost(std::string_view class_name, std::string_view why) {
  Value value;
  value.json =
      fmt::format(R"({{"class":{},"error":{}}})", json::String(class_name), json::String(why));
  value.python_type = class_name;
  value.notes.emplace_back("error", json::String(why));
  return value;
}

void Warn(std::string_view path, const Error& error, Budget& budget, Checkpoint& checkpoint) {
  constexpr uint64_t kCopies = 6;  // Of the message in JSON, until meta.json tells it.
  std::string warning = path.empty() ? std::string(error.what())
                                     : fmt::format("collection {}: {}", Quoted(path), error.what());
  budget.Charge(kCopies * warning.size());
  checkpoint.warnings.push_back(std::move(warning));
}

Content LoseCollection(std::string_view path, const Error& error, Budget& budget,
                       Checkpoint& checkpoint) {
  if (IsLack(error.code())) throw error;
  Warn(path, error, budget, checkpoint);
  return Lost("tensordict", error.what());
}

Content LoseTensor(std::string_view path, Tensor tensor, const Error& error, Budget& budget,
                   Checkpoint& checkpoint) {
  if (IsLack(error.code())) throw error;
  WarnOfDamage(path, error, budget, checkpoint);
  return Damaged(std::move(tensor), error);
}

}  // namespace ckptfs::tensordict
