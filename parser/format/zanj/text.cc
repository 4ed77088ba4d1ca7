#include "parser/format/zanj/text.h"

#include <cerrno>
#include <cmath>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/python_types.h"
#include "parser/format/zanj/tag.h"

namespace ckptfs::zanj {
namespace {

using Kind = json::Node::Kind;

// What is charged for a value, and for each byte of its text: meta.json has it once more.
constexpr uint64_t kCostOfValue = 16;
constexpr uint64_t kCopies = 3;

// "numpy.float32" of "<class 'numpy.float32'>".
std::string_view ClassOf(json::Node description) {
  const auto member = description.Find("__class__");
  if (!member || !member->is_text()) return "object";
  std::string_view name = member->text();
  constexpr std::string_view kBefore = "<class '";
  constexpr std::string_view kBehind = "'>";
  if (!name.starts_with(kBefore) || !name.ends_with(kBehind)) return name;
  name.remove_prefix(kBefore.size());
  name.remove_suffix(kBehind.size());
  return name;
}

// Each Write appends a value and returns its type, which is empty if JSON tells it.
class Writer {
 public:
  explicit Writer(Externals& externals)
      : externals_(externals), budget_(externals.budget()), types_(externals.budget()) {}

  std::string Write(json::Node node) {
    const size_t begin = out_.size();
    std::string type = WriteAny(node);
    const bool is_container = node.is_list() || node.is_object();
    budget_.Charge(kCostOfValue + (is_container ? 2 : kCopies * (out_.size() - begin)));
    return type;
  }

  std::string TakeText() { return std::move(out_); }

  // The types of what is inside.
  PythonTypes& types() { return types_; }

 private:
  std::string WriteAny(json::Node node) {
    if (node.is_object()) return WriteObject(node);
    if (!node.is_list()) return std::string(json::AppendLeaf(out_, node));
    WriteList(node);
    return "";
  }

  std::string WriteObject(json::Node node) {
    const Tag tag = TagOf(node);
    if (tag.kind == Tag::Kind::kText) {
      json::AppendString(out_, node.Find("repr")->text());
      return std::string(ClassOf(node));
    }
    if (tag.kind == Tag::Kind::kSet) {
      WriteList(*node.Find("data"));
      return std::string(tag.text);
    }
    if (tag.kind == Tag::Kind::kExternalTable && externals_.Enter(ReferenceOf(node))) {
      const json::Document rows = externals_.ReadRows(externals_.Open(ReferenceOf(node)));
      Deepen();
      WriteList(rows.root());
      --depth_;
      return tag.type == "list" ? "" : std::string(tag.type);
    }
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : json::UniqueMembers(node, budget_)) {
      if (!tag.text.empty() && IsTagKey(key)) continue;
      if (!std::exchange(is_first, false)) out_ += ',';
      json::AppendString(out_, key);
      budget_.Charge(kCopies * (key.size() + 4));
      out_ += ':';
      WriteChild(key, value);
    }
    out_ += '}';
    return std::string(tag.text);
  }

  void WriteList(json::Node node) {
    out_ += '[';
    json::Items items(node);
    for (size_t index = 0; const auto item = items.Next(); ++index) {
      if (index > 0) out_ += ',';
      WriteChild(std::to_string(index), *item);
    }
    out_ += ']';
  }

  void WriteChild(std::string_view step, json::Node value) {
    const auto inside = types_.Enter(step);
    types_.Tell(Write(value));
  }

  // Lists outside may lie in one another.
  void Deepen() {
    constexpr size_t kMost = 16;
    if (depth_ == kMost) Fail(EFBIG, "has lists outside that are nested more than {} deep", kMost);
    ++depth_;
  }

  Externals& externals_;
  Budget& budget_;
  size_t depth_ = 0;
  std::string out_;
  PythonTypes types_;
};

void AppendPythonDouble(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "NaN";
  } else if (std::isinf(number)) {
    out += number > 0 ? "Infinity" : "-Infinity";
  } else {
    json::AppendDouble(out, number);
  }
}

}  // namespace

Value ValueOf(json::Node node, Externals& externals) {
  Writer writer(externals);
  Value value;
  value.python_type = writer.Write(node);
  externals.budget().Charge(kCopies * value.python_type.size());
  writer.types().AddTo(value);
  value.json = writer.TakeText();
  return value;
}

void AppendRow(std::string& out, json::Node node) {
  switch (node.kind()) {
    case Kind::kBig:
      out += node.text();
      return;
    case Kind::kDouble:
      AppendPythonDouble(out, node.number());
      return;
    case Kind::kList: {
      out += '[';
      json::Items items(node);
      for (bool is_first = true; const auto item = items.Next(); is_first = false) {
        if (!is_first) out += ", ";
        AppendRow(out, *item);
      }
      out += ']';
      return;
    }
    case Kind::kObject: {
      out += '{';
      json::Members members(node);
      for (bool is_first = true; const auto member = members.Next(); is_first = false) {
        if (!is_first) out += ", ";
        json::AppendString(out, member->key);
        out += ": ";
        AppendRow(out, member->value);
      }
      out += '}';
      return;
    }
    default:
      json::AppendLeaf(out, node);
  }
}

}  // namespace ckptfs::zanj
