#include "parser/format/zanj/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/archive/record.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/zanj/array.h"
#include "parser/format/zanj/value.h"
#include "parser/format/zanj/zip.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::zanj {
namespace {

// The positions of all arrays and tables in a JSON document, collected once, so that the lookup for
// a dict or list takes logarithmic time at any depth.
class Leaves {
 public:
  // Throws Error(EFBIG).
  Leaves(json::Node root, Budget& budget);

  // Returns whether `node`, a node of the same document, is or contains an array or a table.
  bool AreIn(json::Node node) const;

 private:
  void Collect(json::Node node);

  std::pmr::vector<size_t> begins_;  // In the document; sorted.
};

Leaves::Leaves(json::Node root, Budget& budget) : begins_(&budget) { Collect(root); }

bool Leaves::AreIn(json::Node node) const {
  const auto first = std::ranges::lower_bound(begins_, node.begin());
  return first != begins_.end() && *first < node.end();
}

// Nodes inside an array or a table belong to it, for example the copy of its first row.
void Leaves::Collect(json::Node node) {
  if (node.is_list()) {
    json::Items items(node);
    while (const auto item = items.Next()) Collect(*item);
  } else if (node.is_object()) {
    const Tag tag = TagOf(node);
    if (tag.is_array() || tag.is_table()) {
      begins_.push_back(node.begin());
    } else if (tag.kind != Tag::Kind::kText) {
      json::Members members(node);
      while (const auto member = members.Next()) Collect(member->value);
    }
  }
}

constexpr std::string_view kRowCount = "len(data)";

std::optional<uint64_t> RowCountOf(json::Node node) {
  const auto count = node.Find(kRowCount);
  const bool is_number = count && count->kind() == json::Node::Kind::kWhole;
  return is_number ? std::optional(count->whole()) : std::nullopt;
}

// Old tags have no type; only tables have a list of column labels.
std::string_view TypeOf(json::Node node, const Tag& tag) {
  if (!tag.type.empty()) return tag.type;
  const auto columns = node.Find("columns");
  return columns && columns->is_list() ? "pandas.DataFrame" : "list";
}

// The labels of the columns: a list of them, or an object with statistics for each.
void AddColumns(json::Node node, Externals& externals, Table& table) {
  const auto columns = node.Find("columns");
  if (!columns || (!columns->is_list() && !columns->is_object())) return;
  table.annotations.emplace_back("columns", ValueOf(*columns, externals).json);
}

// An interrupted save leaves only the first rows.
void CheckRows(const Record& record, uint64_t want, Externals& externals) {
  constexpr uint64_t kMostToCount = uint64_t{4} << 20;
  constexpr uint64_t kShortestRow = 2;  // Bytes of a digit and of the end of the line.
  const bool is_counted =
      record.data.length <= kMostToCount && externals.Allows(record.data.length);
  const uint64_t most =
      is_counted ? externals.CountRows(record) : record.data.length / kShortestRow;
  if (most < want || (is_counted && most > want)) {
    Fail(EBADMSG, "has {} rows, but should have {}", most, want);
  }
}

void FillInline(json::Node node, Budget& budget, Table& table) {
  std::string lines;
  uint64_t count = 0;
  json::Items rows(*node.Find("data"));
  for (; const auto row = rows.Next(); ++count) {
    const size_t begin = lines.size();
    AppendRow(lines, *row);
    lines += '\n';
    budget.Charge(lines.size() - begin);
  }
  const uint64_t length = lines.size();
  table.data = {std::make_shared<MemorySource>(std::move(lines)), 0, length};
  table.annotations.emplace_back("rows", std::to_string(count));
}

void FillExternal(json::Node node, Externals& externals, Table& table) {
  const auto rows = RowCountOf(node);
  if (rows) table.annotations.emplace_back("rows", std::to_string(*rows));
  const Record record = externals.Open(ReferenceOf(node));
  table.member = record.member;
  const zip::Member* member = externals.members().Find(record.member);
  const uint64_t size = member == nullptr ? 0 : member->size;
  table.data = {nullptr, 0, size <= kMaxPlaceholderSize ? size : 0};
  record.Check();
  if (rows) CheckRows(record, *rows, externals);
  table.data = record.data;
}

// Reads the table `node`. A corrupt table has an error. Throws Error(EFBIG).
Table TableOf(json::Node node, const Tag& tag, Externals& externals) {
  constexpr uint64_t kCost = 512;  // In bytes, of its entry.
  externals.budget().Charge(kCost);
  Table table;
  table.python_type = TypeOf(node, tag);
  AddColumns(node, externals, table);
  try {
    if (tag.kind == Tag::Kind::kTable) {
      FillInline(node, externals.budget(), table);
    } else {
      FillExternal(node, externals, table);
    }
  } catch (const Error& e) {
    if (IsFatal(e)) throw;
    table.error.emplace(EIO, e.what());
    table.data = {nullptr, 0, table.data.length};
  }
  return table;
}

// Whether the rows of `table` may contain arrays. The cells of data frames are plain.
bool MayHaveArrays(const Table& table) { return !table.python_type.ends_with("DataFrame"); }

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
    // As for all names, there are several copies.
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
      if (IsFatal(e)) throw;
      WarnOfUnreadable(Path(), e, budget_, checkpoint_);
      return MakePlaceholder(std::move(tensor), e);
    }
  }

  Content LinesOf(json::Node node, const Tag& tag) {
    Table table = TableOf(node, tag, externals_);
    if (table.error) {
      Warn("table {}: {}: reading it will fail", Quoted(Path()), table.error->what());
      if (externals_.members().Find(table.member) == nullptr) return LostTable(table);
      return table;
    }
    if (!MayHaveArrays(table) || !externals_.Enter(table.member)) return table;
    try {
      return WithArrays(std::move(table));
    } catch (const Error& e) {
      if (IsTransient(e.code())) throw;
      Warn("table {}: {}: arrays in its rows are ignored", Quoted(Path()), e.what());
    }
    return TableOf(node, tag, externals_);
  }

  // Returns the placeholder for a table whose member is missing, and whose length is unknown.
  static Value LostTable(const Table& table) {
    return {.json = fmt::format(R"({{"class":{},"error":{}}})", json::String(table.python_type),
                                json::String(table.error->what())),
            .python_type = table.python_type,
            .error = table.error,
            .annotations = {}};
  }

  // Returns a table, and beside it the arrays in its rows, if there are any.
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
  std::vector<std::string> path_;  // The keys of the current node.
};

}  // namespace

void AddTree(json::Node root, Externals& externals, Checkpoint& checkpoint) {
  Builder(externals, checkpoint).AddRoot(root);
}

}  // namespace ckptfs::zanj
