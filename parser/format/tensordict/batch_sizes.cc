#include "parser/format/tensordict/batch_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace ckptfs::tensordict {
namespace {

// As deep as the groups lie in one another, which whoever made them has bounded.
bool Drop(Group& group, Budget& budget) {
  budget.Work(group.members.size());
  bool has_composite = !group.about.empty();
  for (Member& member : group.members) {
    auto* inner = std::get_if<std::unique_ptr<Group>>(&member.content);
    has_composite = (inner != nullptr && Drop(**inner, budget)) || has_composite;
  }
  if (!has_composite) return false;
  auto& batch = group.collection.batch;
  if (!batch || batch->size.empty()) return true;
  std::string size = fmt::format("[{}]", fmt::join(batch->size, ","));
  budget.Charge(2 * size.size());
  group.annotations.emplace_back("batch_size", std::move(size));
  *batch = {};
  return true;
}

}  // namespace

void DropBatchSizesAroundComposites(Group& root, Budget& budget) { Drop(root, budget); }

}  // namespace ckptfs::tensordict
