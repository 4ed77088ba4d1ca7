#include "parser/format/zanj/tag.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace ckptfs::zanj {
namespace {

constexpr std::string_view kKey = "__muutils_format__";
constexpr std::string_view kOldKey = "__format__";
constexpr std::string_view kReference = "$ref";

using Kind = Tag::Kind;

constexpr std::pair<std::string_view, Kind> kModes[] = {
    {"array_list_meta", Kind::kLists},
    {"array_hex_meta", Kind::kHex},
    {"array_b64_meta", Kind::kBase64},
    {"zero_dim", Kind::kScalar},
};

// Types whose rows are outside; what else is outside is an array.
constexpr std::string_view kTables[] = {"list", "tuple", "pandas.DataFrame", "polars.DataFrame"};

// What muutils 0.2 wrote, where types had no part in tags.
constexpr std::pair<std::string_view, Kind> kOldTags[] = {
    {"external:npy", Kind::kExternalArray},
    {"external:jsonl", Kind::kExternalTable},
    {"array_list_meta", Kind::kLists},
    {"array_hex_meta", Kind::kHex},
};

// The members of what ZANJ describes because it can do no better, which are these and no others.
constexpr std::string_view kDescription[] = {
    "__name__", "__doc__", "__module__", "__class__", "__dict__", "__annotations__",
    "str",      "dir",     "type",       "repr",      "code",     "sourcefile"};

// What `tag` stands for if an object has all that it needs.
Tag Parse(std::string_view tag) {
  const auto* old = std::ranges::find(kOldTags, tag, &std::pair<std::string_view, Kind>::first);
  if (old != std::end(kOldTags)) return {old->second, tag, {}};
  if (tag == "set" || tag == "frozenset") return {Kind::kSet, tag, tag};
  if (tag == "pandas.DataFrame") return {Kind::kTable, tag, tag};
  const size_t colon = tag.rfind(':');
  if (colon == std::string_view::npos) return {Kind::kClass, tag, {}};
  const std::string_view type = tag.substr(0, colon);
  const std::string_view mode = tag.substr(colon + 1);
  if (mode == "external") {
    const bool is_table = std::ranges::count(kTables, type) != 0;
    return {is_table ? Kind::kExternalTable : Kind::kExternalArray, tag, type};
  }
  const auto* known = std::ranges::find(kModes, mode, &std::pair<std::string_view, Kind>::first);
  if (known != std::end(kModes)) return {known->second, tag, type};
  return {Kind::kClass, tag, {}};
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

// The tag but for sets whose data are outside, which are objects here.
Tag TagInPlace(json::Node node) {
  if (!node.is_object()) return {};
  auto member = node.Find(kKey);
  if (!member || !member->is_text()) member = node.Find(kOldKey);
  if (!member || !member->is_text()) {
    return IsDescription(node) && HasText(node, "repr") ? Tag{Kind::kText, {}, {}} : Tag{};
  }
  const Tag tag = Parse(member->text());
  const Tag other = {Kind::kClass, tag.text, {}};
  switch (tag.kind) {
    case Kind::kExternalArray:
    case Kind::kExternalTable:
      return HasText(node, kReference) ? tag : other;
    case Kind::kTable:
    case Kind::kSet:
      return HasList(node, "data") ? tag : other;
    default:
      return tag;
  }
}

}  // namespace

bool IsTagKey(std::string_view key) { return key == kKey || key == kOldKey; }

Tag TagOf(json::Node node) {
  const Tag tag = TagInPlace(node);
  if (tag.kind != Kind::kClass || (tag.text != "set" && tag.text != "frozenset")) return tag;
  const auto data = node.Find("data");
  const bool is_outside = data && TagInPlace(*data).kind == Kind::kExternalTable;
  return is_outside ? Tag{Kind::kExternalTable, tag.text, tag.text} : tag;
}

std::string_view ReferenceOf(json::Node node) {
  const Kind kind = TagInPlace(node).kind;
  const bool is_in_place = kind == Kind::kExternalTable || kind == Kind::kExternalArray;
  return (is_in_place ? node : *node.Find("data")).Find(kReference)->text();
}

}  // namespace ckptfs::zanj
