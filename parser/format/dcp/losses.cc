#include "parser/format/dcp/losses.h"

#include <fmt/format.h>

#include "parser/base/error.h"
#include "parser/base/json.h"

namespace ckptfs::dcp {

void Losses::Add(std::string_view file, std::string_view item, std::string_view why) {
  constexpr size_t kMostItems = 1000;
  Loss& loss = by_file_[Quoted(file)];
  if (loss.count++ == 0) {
    loss.first = Quoted(item);
    loss.why = why;
    budget_.Charge(sizeof(Loss) + loss.why.size());
  }
  if (count_ == kMostItems || (count_ > 0 && last_ == item)) return;
  ++count_;
  budget_.Charge(item.size());
  last_ = item;
  if (!items_.empty()) items_ += ',';
  json::AppendString(items_, item);
}

std::string Losses::Sentence(const std::pair<const std::string, Loss>& loss) {
  const auto& [file, what] = loss;
  if (what.count == 1) return fmt::format("{}: {} in it is lost: {}", file, what.first, what.why);
  return fmt::format("{}: {} parts in it are lost, the first of them {}: {}", file, what.count,
                     what.first, what.why);
}

void Losses::Tell(Checkpoint& checkpoint) const {
  if (empty()) return;
  for (const auto& loss : by_file_) checkpoint.warnings.push_back(Sentence(loss));
  checkpoint.annotations.emplace_back("lost", fmt::format("[{}]", items_));
}

}  // namespace ckptfs::dcp
