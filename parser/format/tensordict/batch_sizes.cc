#include "parser/format/tensordict/batch_sizes.h"

#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace ckptfs::tensordict {
namespace {

// What TextOf writes (see collection.h): the batch size, the device, perhaps names, the type.
constexpr std::string_view kShape = "\"shape\":[";
constexpr std::string_view kDevice = ",\"device\":";
constexpr std::string_view kType = ",\"_type\":";

// Sets the batch size in `text`, if it has one, to []. Returns what it was, in JSON, or nothing.
std::string DropBatchSize(std::string& text) {
  if (!text.starts_with(kShape)) return "";
  const size_t device = text.find(kDevice);
  const size_t type = text.rfind(kType);  // In texts, quotes are escaped.
  if (device == std::string::npos || type == std::string::npos || type < device) return "";
  std::string size = text.substr(kShape.size() - 1, device - kShape.size() + 1);
  if (size == "[]") return "";
  const size_t after_device = text.find(',', device + 1);
  text = std::string(kShape) + "]" + text.substr(device, after_device - device) + text.substr(type);
  return size;
}

// As deep as the groups lie in one another, which whoever made them has bounded.
bool Drop(Group& group, Budget& budget) {
  budget.Work(group.members.size());
  bool has_composite = !group.about.empty();
  for (Member& member : group.members) {
    auto* inner = std::get_if<std::unique_ptr<Group>>(&member.content);
    has_composite = (inner != nullptr && Drop(**inner, budget)) || has_composite;
  }
  if (!has_composite) return false;
  budget.Charge(2 * group.collection.text.size());
  std::string size = DropBatchSize(group.collection.text);
  if (!size.empty()) group.annotations.emplace_back("batch_size", std::move(size));
  return true;
}

}  // namespace

void DropBatchSizesAroundComposites(Group& root, Budget& budget) { Drop(root, budget); }

}  // namespace ckptfs::tensordict
