#include "parser/format/tensordict/collection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "parser/base/dtype.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/placeholder.h"

namespace ckptfs::tensordict {
namespace {

constexpr std::string_view kBefore = "<class '";
constexpr std::string_view kBehind = "'>";

struct Row {
  std::string_view type;
  CollectionKind kind;
};

constexpr Row kRows[] = {
    {kTensorDictType, CollectionKind::kTensorDict},
    {kLazyStackType, CollectionKind::kStack},
    {kNonTensorDataType, CollectionKind::kValue},
    {"<class 'tensordict.tensorclass.MetaData'>", CollectionKind::kValue},
    {kNonTensorStackType, CollectionKind::kValueStack},
    {"<class 'tensordict._td._SubTensorDict'>", CollectionKind::kView},
    {"<class 'tensordict._lazy._UnsqueezedTensorDict'>", CollectionKind::kView},
    {"<class 'tensordict._lazy._SqueezedTensorDict'>", CollectionKind::kView},
    {"<class 'tensordict._lazy._ViewedTensorDict'>", CollectionKind::kView},
    {"<class 'tensordict._lazy._TransposedTensorDict'>", CollectionKind::kView},
    {"<class 'tensordict._lazy._PermutedTensorDict'>", CollectionKind::kView},
};

// The classes of tensordict that are loaded as a TensorDict, some of them only if their module has
// been imported.
bool IsLoadedAsTensorDict(std::string_view type) {
  return type == "<class 'tensordict.nn.params.TensorDictParams'>" ||
         type == "<class 'tensordict.persistent.PersistentTensorDict'>" ||
         (type.starts_with("<class 'tensordict.store.") && type.ends_with("TensorDictStore'>"));
}

}  // namespace

CollectionKind KindOf(std::string_view type) {
  const auto* row = std::ranges::find(kRows, type, &Row::type);
  if (row != std::end(kRows)) return row->kind;
  return IsLoadedAsTensorDict(type) ? CollectionKind::kTensorDict : CollectionKind::kTensorClass;
}

std::string_view TextAt(json::Node object, std::string_view key) {
  const auto member = object.Find(key);
  return member && member->is_text() ? member->text() : std::string_view();
}

std::string_view ClassOf(std::string_view type) {
  if (!type.starts_with(kBefore) || !type.ends_with(kBehind)) return {};
  if (type.size() <= kBefore.size() + kBehind.size()) return {};
  return type.substr(kBefore.size(), type.size() - kBefore.size() - kBehind.size());
}

std::vector<uint64_t> SizesOf(json::Node list, std::string_view what) {
  if (!list.is_list()) Fail(EBADMSG, "{}: not a list", what);
  if (list.count() > kMaxDimensions) {
    Fail(EBADMSG, "{}: too many dimensions (found {}, maximum {})", what, list.count(),
         kMaxDimensions);
  }
  std::vector<uint64_t> sizes;
  json::Items items(list);
  while (const auto item = items.Next()) {
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    if (item->kind() != json::Node::Kind::kWhole || item->whole() > kMost) {
      Fail(EBADMSG, "its {} has an item that is not a number from 0 to 2^63", what);
    }
    sizes.push_back(item->whole());
  }
  return sizes;
}

std::string NamesOf(json::Node list, size_t count) {
  if (!list.is_list() || list.count() != count || count > kMaxDimensions) return {};
  std::vector<std::string> names;
  json::Items items(list);
  while (const auto item = items.Next()) {
    const bool is_null = item->kind() == json::Node::Kind::kNull;
    if (!is_null && !item->is_text()) return {};
    names.push_back(is_null ? "null" : json::String(item->text()));
    if (!is_null && std::ranges::count(names, names.back()) > 1) return {};
  }
  const bool has_any = std::ranges::any_of(names, [](const auto& name) { return name != "null"; });
  return has_any ? fmt::format("[{}]", fmt::join(names, ",")) : "";
}

Collection CollectionOf(Head head, std::string_view type, Budget& budget) {
  if (IsLoadedAsTensorDict(type)) type = kTensorDictType;
  if (head.batch_size.empty() && head.has_device && head.names.empty() && type == kTensorDictType) {
    return {};
  }
  Collection collection;
  collection.text = fmt::format(R"("device":"{}","_type":{})", head.has_device ? "cpu" : "None",
                                json::String(type));
  constexpr uint64_t kCostOfSize = 24;  // Bytes of a size, as a number and in JSON.
  budget.Charge(2 * (collection.text.size() + head.names.size()) +
                kCostOfSize * head.batch_size.size());
  collection.batch = {.size = std::move(head.batch_size), .names = std::move(head.names)};
  return collection;
}

std::string StackText(uint64_t dimension, std::string_view name, std::string_view type) {
  std::string text = fmt::format("\"stack_dim\":{}", dimension);
  if (!name.empty()) text += ",\"stack_dim_name\":" + json::String(name);
  return text + ",\"_type\":" + json::String(type);
}

void AppendName(std::string& members, std::string_view name) {
  if (!members.empty()) members += ',';
  json::AppendString(members, name);
  members += ':';
}

std::string PathOf(std::string_view path, std::string_view key) {
  constexpr size_t kMost = 256;  // Bytes.
  std::string whole(path);
  whole += key.substr(0, kMost);
  whole.resize(std::min(whole.size(), kMost));
  return whole;
}

Value Lost(std::string_view class_name, const Error& error) {
  Value value;
  value.json = fmt::format(R"({{"class":{},"error":{}}})", json::String(class_name),
                           json::String(error.what()));
  value.python_type = class_name;
  value.error = error;
  return value;
}

Content Losses::Keep(Tensor tensor) {
  if (tensor.data.length > 0) ++readable_;
  return tensor;
}

Content Losses::LoseTensor(std::string_view path, Tensor tensor, const Error& error) {
  if (IsTransient(error.code())) throw error;
  if (!first_) first_ = WithContext("tensor " + Quoted(path), error);
  WarnOfUnreadable(path, error, budget_, checkpoint_);
  return MakePlaceholder(std::move(tensor), error);
}

Content Losses::LoseCollection(std::string_view path, const Error& error) {
  if (IsTransient(error.code())) throw error;
  constexpr uint64_t kCopies = 6;  // Of the message in JSON, including meta.json.
  std::string warning = path.empty() ? std::string(error.what())
                                     : fmt::format("collection {}: {}", Quoted(path), error.what());
  budget_.Charge(kCopies * warning.size());
  checkpoint_.warnings.push_back(std::move(warning));
  return Lost("tensordict", error);
}

void Losses::Finish() const {
  if (first_ && readable_ == 0) throw Error(EBADMSG, first_->what());
}

namespace {

// The depth of the recursion is that of the groups, which their reader has bounded.
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
