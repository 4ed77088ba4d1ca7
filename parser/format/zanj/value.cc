#include "parser/format/zanj/value.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/annotations.h"

namespace ckptfs::zanj {
namespace {

using Kind = json::Node::Kind;

// The charge for a value, and for each byte of its text, which meta.json repeats.
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

// Each Write appends a value and returns its type, which is empty if JSON expresses it.
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
    json::AppendList(out_, node, [this](size_t index, json::Node item) {
      WriteChild(std::to_string(index), item);
    });
  }

  void WriteChild(std::string_view step, json::Node value) {
    const auto inside = types_.Enter(step);
    types_.Add(Write(value));
  }

  // Lists in other members may be nested.
  void Deepen() {
    constexpr size_t kMost = 16;
    if (depth_ == kMost)
      Fail(EFBIG, "has lists in other members that are nested more than {} deep", kMost);
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

namespace {

constexpr std::string_view kKey = "__muutils_format__";
constexpr std::string_view kOldKey = "__format__";
constexpr std::string_view kReference = "$ref";

constexpr std::pair<std::string_view, Tag::Kind> kModes[] = {
    {"array_list_meta", Tag::Kind::kLists},
    {"array_hex_meta", Tag::Kind::kHex},
    {"array_b64_meta", Tag::Kind::kBase64},
    {"zero_dim", Tag::Kind::kScalar},
};

// Types whose rows are in another member; other external types are arrays.
constexpr std::string_view kTables[] = {"list", "tuple", "pandas.DataFrame", "polars.DataFrame"};

// Tags of muutils 0.2, which had no types.
constexpr std::pair<std::string_view, Tag::Kind> kOldTags[] = {
    {"external:npy", Tag::Kind::kExternalArray},
    {"external:jsonl", Tag::Kind::kExternalTable},
    {"array_list_meta", Tag::Kind::kLists},
    {"array_hex_meta", Tag::Kind::kHex},
};

// The members of an object that ZANJ could only describe; it has exactly these.
constexpr std::string_view kDescription[] = {
    "__name__", "__doc__", "__module__", "__class__", "__dict__", "__annotations__",
    "str",      "dir",     "type",       "repr",      "code",     "sourcefile"};

// Returns the kind of `tag` if an object has all members that it needs.
Tag ParseTag(std::string_view tag) {
  const auto* old =
      std::ranges::find(kOldTags, tag, &std::pair<std::string_view, Tag::Kind>::first);
  if (old != std::end(kOldTags)) return {old->second, tag, {}};
  if (tag == "set" || tag == "frozenset") return {Tag::Kind::kSet, tag, tag};
  if (tag == "pandas.DataFrame") return {Tag::Kind::kTable, tag, tag};
  const size_t colon = tag.rfind(':');
  if (colon == std::string_view::npos) return {Tag::Kind::kClass, tag, {}};
  const std::string_view type = tag.substr(0, colon);
  const std::string_view mode = tag.substr(colon + 1);
  if (mode == "external") {
    const bool is_table = std::ranges::count(kTables, type) != 0;
    return {is_table ? Tag::Kind::kExternalTable : Tag::Kind::kExternalArray, tag, type};
  }
  const auto* known =
      std::ranges::find(kModes, mode, &std::pair<std::string_view, Tag::Kind>::first);
  if (known != std::end(kModes)) return {known->second, tag, type};
  return {Tag::Kind::kClass, tag, {}};
}

bool IsDescription(json::Node object) {
  return object.count() == std::size(kDescription) &&
         std::ranges::all_of(kDescription,
                             [&](std::string_view key) { return object.Find(key).has_value(); });
}

bool HasText(json::Node object, std::string_view key) {
  const auto member = object.Find(key);
  return member && member->is_text();
}

bool HasList(json::Node object, std::string_view key) {
  const auto member = object.Find(key);
  return member && member->is_list();
}

// Returns the tag of `node`, but an object for a set whose data are in another member.
Tag TagInPlace(json::Node node) {
  if (!node.is_object()) return {};
  auto member = node.Find(kKey);
  if (!member || !member->is_text()) member = node.Find(kOldKey);
  if (!member || !member->is_text()) {
    return IsDescription(node) && HasText(node, "repr") ? Tag{Tag::Kind::kText, {}, {}} : Tag{};
  }
  const Tag tag = ParseTag(member->text());
  const Tag other = {Tag::Kind::kClass, tag.text, {}};
  switch (tag.kind) {
    case Tag::Kind::kExternalArray:
    case Tag::Kind::kExternalTable:
      return HasText(node, kReference) ? tag : other;
    case Tag::Kind::kTable:
    case Tag::Kind::kSet:
      return HasList(node, "data") ? tag : other;
    default:
      return tag;
  }
}

}  // namespace

bool IsTagKey(std::string_view key) { return key == kKey || key == kOldKey; }

Tag TagOf(json::Node node) {
  const Tag tag = TagInPlace(node);
  if (tag.kind != Tag::Kind::kClass || (tag.text != "set" && tag.text != "frozenset")) return tag;
  const auto data = node.Find("data");
  const bool is_outside = data && TagInPlace(*data).kind == Tag::Kind::kExternalTable;
  return is_outside ? Tag{Tag::Kind::kExternalTable, tag.text, tag.text} : tag;
}

std::string_view ReferenceOf(json::Node node) {
  const Tag::Kind kind = TagInPlace(node).kind;
  const bool is_in_place = kind == Tag::Kind::kExternalTable || kind == Tag::Kind::kExternalArray;
  return (is_in_place ? node : *node.Find("data")).Find(kReference)->text();
}

}  // namespace ckptfs::zanj
