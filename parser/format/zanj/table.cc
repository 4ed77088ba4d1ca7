#include "parser/format/zanj/table.h"

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/damaged.h"
#include "parser/format/zanj/text.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::zanj {
namespace {

constexpr std::string_view kRowCount = "len(data)";

std::optional<uint64_t> ToldRows(json::Node node) {
  const auto count = node.Find(kRowCount);
  const bool is_number = count && count->kind() == json::Node::Kind::kWhole;
  return is_number ? std::optional(count->whole()) : std::nullopt;
}

// Before tags had types, only tables had their labels in a list.
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

// A save that failed may have left only the first rows.
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
  const auto rows = ToldRows(node);
  if (rows) table.annotations.emplace_back("rows", std::to_string(*rows));
  const Record record = externals.Open(ReferenceOf(node));
  table.member = record.member;
  const zip::Member* member = externals.members().Find(record.member);
  const uint64_t size = member == nullptr ? 0 : member->size;
  table.data = {nullptr, 0, size <= kMostForDamaged ? size : 0};
  if (!record.error.empty()) throw Error(record.error_code, record.error);
  if (rows) CheckRows(record, *rows, externals);
  table.data = record.data;
}

}  // namespace

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
    if (e.code() == EFBIG || IsTransient(e.code())) throw;
    table.error = e.what();
    table.data = {nullptr, 0, table.data.length};
  }
  return table;
}

bool MayHaveArrays(const Table& table) { return !table.python_type.ends_with("DataFrame"); }

}  // namespace ckptfs::zanj
