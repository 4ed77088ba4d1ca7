#include "parser/format/tensordict/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parser/base/json.h"
#include "parser/format/common/damaged.h"

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
  value.annotations.emplace_back("error", json::String(why));
  return value;
}

Content Losses::Keep(Tensor tensor) {
  if (tensor.data.length > 0) ++readable_;
  return tensor;
}

Content Losses::LoseTensor(std::string_view path, Tensor tensor, const Error& error) {
  if (IsTransient(error.code())) throw error;
  if (!first_) first_ = WithContext("tensor " + Quoted(path), error);
  WarnOfDamage(path, error, budget_, checkpoint_);
  return Damaged(std::move(tensor), error);
}

Content Losses::LoseCollection(std::string_view path, const Error& error) {
  if (IsTransient(error.code())) throw error;
  constexpr uint64_t kCopies = 6;  // Of the message in JSON, until meta.json tells it.
  std::string warning = path.empty() ? std::string(error.what())
                                     : fmt::format("collection {}: {}", Quoted(path), error.what());
  budget_.Charge(kCopies * warning.size());
  checkpoint_.warnings.push_back(std::move(warning));
  return Lost("tensordict", error.what());
}

void Losses::Finish() const {
  if (first_ && readable_ == 0) throw Error(EBADMSG, first_->what());
}

}  // namespace ckptfs::tensordict
