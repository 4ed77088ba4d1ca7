#include "parser/format/zanj/tree.h"

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/damaged.h"
#include "parser/format/zanj/array.h"
#include "parser/format/zanj/leaves.h"
#include "parser/format/zanj/table.h"
#include "parser/format/zanj/tag.h"
#include "parser/format/zanj/text.h"

namespace ckptfs::zanj {
namespace {

bool MustPropagate(const Error& error) {
  return error.code() == EFBIG || IsTransient(error.code());
}

class Builder {
 public:
  Builder(Externals& externals, Checkpoint& checkpoint)
      : externals_(externals), budget_(externals.budget()), checkpoint_(checkpoint) {}

  void AddRoot(json::Node node) {
    const Leaves leaves(node, budget_);
    const Tag tag = TagOf(node);
    Group& root = checkpoint_.root;
    if (node.is_list()) {
      FillList(node, leaves, root);
    } else if (tag.kind == Tag::Kind::kNone || tag.kind == Tag::Kind::kClass) {
      if (node.is_object()) return FillObject(node, tag, leaves, root);
      AddMember({"value"}, node, leaves, root);
    } else {
      AddMember({tag.is_array() ? "tensor" : "value"}, node, leaves, root);
    }
  }

 private:
  void AddMember(Key key, json::Node node, const Leaves& leaves, Group& group) {
    // As of all names, there are several copies.
    constexpr uint64_t kCostOfByte = 8;
    budget_.Charge(2 * sizeof(Member) + kCostOfByte * key.text.size());
    if (path_.size() == json::kMaxPythonDepth) {
      Fail(EFBIG, "is nested more than {} deep", json::kMaxPythonDepth);
    }
    path_.push_back(key.text);
    group.members.push_back({std::move(key), Value{}});
    group.members.back().content = ContentOf(node, leaves);
    path_.pop_back();
  }

  Content ContentOf(json::Node node, const Leaves& leaves) {
    if (!leaves.AreIn(node)) return ValueOf(node, externals_);
    const Tag tag = TagOf(node);
    if (tag.is_array()) return ArrayOf(node, tag);
    if (tag.is_table()) return LinesOf(node, tag);
    budget_.Charge(sizeof(Group));
    auto group = std::make_unique<Group>();
    if (node.is_list()) {
      FillList(node, leaves, *group);
    } else {
      FillObject(node, tag, leaves, *group);
    }
    return group;
  }

  void FillList(json::Node node, const Leaves& leaves, Group& group) {
    group.python_type = "list";
    json::Items items(node);
    for (size_t index = 0; const auto item = items.Next(); ++index) {
      AddMember({std::to_string(index), Key::Kind::kNumber}, *item, leaves, group);
    }
  }

  void FillObject(json::Node node, const Tag& tag, const Leaves& leaves, Group& group) {
    group.python_type = tag.text;
    budget_.Charge(2 * tag.text.size());
    for (const auto& [key, value] : json::UniqueMembers(node, budget_)) {
      if (!tag.text.empty() && IsTagKey(key)) continue;
      AddMember({std::string(key)}, value, leaves, group);
    }
  }

  Content ArrayOf(json::Node node, const Tag& tag) {
    Tensor tensor;
    try {
      if (!HasBytes(node, tag)) return ValueOfArray(node, tag, externals_);
      FillArray(node, tag, externals_, tensor);
      return tensor;
    } catch (const Error& e) {
      if (MustPropagate(e)) throw;
      WarnOfDamage(Path(), e, budget_, checkpoint_);
      return Damaged(std::move(tensor), e);
    }
  }

  Content LinesOf(json::Node node, const Tag& tag) {
    Table table = TableOf(node, tag, externals_);
    if (!table.error.empty()) {
      Warn("table {}: {}: reading it will fail", Quoted(Path()), table.error);
      if (externals_.members().Find(table.member) == nullptr) return LostTable(table);
      return table;
    }
    if (!MayHaveArrays(table) || !externals_.Enter(table.member)) return table;
    try {
      return WithArrays(std::move(table));
    } catch (const Error& e) {
      if (IsTransient(e.code())) throw;
      Warn("table {}: {}: arrays in its rows are left out", Quoted(Path()), e.what());
    }
    return TableOf(node, tag, externals_);
  }

  // A table of which nothing is there, not even a length.
  static Value LostTable(const Table& table) {
    Value value{.json = fmt::format(R"({{"class":{},"error":{}}})", json::String(table.python_type),
                                    json::String(table.error)),
                .python_type = table.python_type,
                .annotations = {}};
    value.annotations.emplace_back("error", json::String(table.error));
    return value;
  }

  // A table or, if there are arrays in its rows, these beside it.
  Content WithArrays(Table table) {
    const Record record = externals_.Open(table.member);
    if (!externals_.IsWorthReading(record)) return table;
    const json::Document rows = externals_.ReadRows(record);
    const Leaves leaves(rows.root(), budget_);
    if (!leaves.AreIn(rows.root())) return table;
    budget_.Charge(sizeof(Group) + sizeof(Table));
    auto group = std::make_unique<Group>();
    FillList(rows.root(), leaves, *group);
    group->python_type = table.python_type;
    group->table = std::make_unique<Table>(std::move(table));
    return group;
  }

  template <typename... Args>
  void Warn(fmt::format_string<Args...> format, Args&&... args) {
    constexpr uint64_t kCopies = 8;
    checkpoint_.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
    budget_.Charge(kCopies * checkpoint_.warnings.back().size());
  }

  std::string Path() const {
    std::string path;
    for (const std::string& key : path_) path.append(path.empty() ? "" : ".").append(key);
    return path;
  }

  Externals& externals_;
  Budget& budget_;
  Checkpoint& checkpoint_;
  std::vector<std::string> path_;  // Keys of what is being made.
};

}  // namespace

void AddTree(json::Node root, Externals& externals, Checkpoint& checkpoint) {
  Builder(externals, checkpoint).AddRoot(root);
}

}  // namespace ckptfs::zanj
