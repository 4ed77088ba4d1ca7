// A value is one byte, its kind, and then: of a number, its eight bytes; of a text, its length in
// eight bytes and the text; of a list or an object, its end, the number of its values, and the
// values; each value of an object follows the length and the text of its key.

#include "parser/codec/json_document.h"

#include <bit>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "parser/base/hash.h"
#include "parser/base/json.h"
#include "parser/base/text.h"

namespace ckptfs::json {
namespace {

constexpr size_t kKindSize = 1;
constexpr size_t kWord = sizeof(uint64_t);

uint64_t WordAt(const char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Parses a number with a fraction or an exponent. Numbers too large for a double are infinite, as
// in Python.
double DoubleOf(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc::result_out_of_range) return number;
  // The number is too large or too small. JSON allows no leading zeros before the point except a
  // single 0.
  const size_t exponent = text.find_first_of("eE");
  const bool is_small = exponent != std::string_view::npos
                            ? text.substr(exponent + 1).starts_with('-')
                            : text.starts_with("0.") || text.starts_with("-0.");
  const double magnitude = is_small ? 0 : std::numeric_limits<double>::infinity();
  return text.starts_with('-') ? -magnitude : magnitude;
}

}  // namespace

uint64_t Node::whole() const {
  assert(kind() == Kind::kWhole);
  return WordAt(document_ + begin_ + kKindSize);
}

int64_t Node::negative() const {
  assert(kind() == Kind::kNegative);
  return static_cast<int64_t>(WordAt(document_ + begin_ + kKindSize));
}

double Node::number() const {
  assert(kind() == Kind::kDouble);
  return std::bit_cast<double>(WordAt(document_ + begin_ + kKindSize));
}

std::string_view Node::text() const {
  assert(kind() == Kind::kText || kind() == Kind::kBig);
  return {document_ + begin_ + kKindSize + kWord, WordAt(document_ + begin_ + kKindSize)};
}

size_t Node::count() const {
  assert(is_list() || is_object());
  return WordAt(document_ + begin_ + kKindSize + kWord);
}

size_t Node::end() const {
  switch (kind()) {
    case Kind::kNull:
    case Kind::kFalse:
    case Kind::kTrue:
      return begin_ + kKindSize;
    case Kind::kWhole:
    case Kind::kNegative:
    case Kind::kDouble:
      return begin_ + kKindSize + kWord;
    case Kind::kText:
    case Kind::kBig:
      return begin_ + kKindSize + kWord + text().size();
    case Kind::kList:
    case Kind::kObject:
      return WordAt(document_ + begin_ + kKindSize);
  }
  return begin_;
}

std::optional<Node> Node::Find(std::string_view key) const {
  std::optional<Node> found;
  if (!is_object()) return found;
  Members members(*this);
  while (const auto member = members.Next()) {
    if (member->key == key) found = member->value;
  }
  return found;
}

Items::Items(Node list)
    : next_(list.document_, list.begin_ + kKindSize + 2 * kWord), end_(list.end()) {
  assert(list.is_list());
}

std::optional<Node> Items::Next() {
  if (next_.begin_ == end_) return std::nullopt;
  const Node item = next_;
  next_.begin_ = item.end();
  return item;
}

Members::Members(Node object)
    : next_(object.document_, object.begin_ + kKindSize + 2 * kWord), end_(object.end()) {
  assert(object.is_object());
}

std::optional<Members::Member> Members::Next() {
  if (next_.begin_ == end_) return std::nullopt;
  const char* const at = next_.document_ + next_.begin_;
  const std::string_view key(at + kWord, WordAt(at));
  next_.begin_ += kWord + key.size();
  const Member member = {key, next_};
  next_.begin_ = member.value.end();
  return member;
}

std::pmr::vector<Members::Member> UniqueMembers(Node object, Budget& budget) {
  std::pmr::vector<Members::Member> found(&budget);
  std::pmr::unordered_map<std::string_view, size_t, SecretHash> places(&budget);
  Members members(object);
  while (const auto member = members.Next()) {
    const auto [place, is_new] = places.emplace(member->key, found.size());
    if (is_new) {
      found.push_back(*member);
    } else {
      found[place->second].value = member->value;
    }
  }
  return found;
}

std::string_view AppendLeaf(std::string& out, Node leaf) {
  using Kind = Node::Kind;
  switch (leaf.kind()) {
    case Kind::kNull:
      out += "null";
      return {};
    case Kind::kFalse:
      out += "false";
      return {};
    case Kind::kTrue:
      out += "true";
      return {};
    case Kind::kWhole:
      out += std::to_string(leaf.whole());
      return {};
    case Kind::kNegative:
      out += std::to_string(leaf.negative());
      return {};
    case Kind::kBig:
      AppendString(out, leaf.text());
      return "int";
    case Kind::kDouble:
      AppendDouble(out, leaf.number());
      return std::isfinite(leaf.number()) ? std::string_view() : "float";
    case Kind::kText:
      AppendString(out, leaf.text());
      return {};
    case Kind::kList:
    case Kind::kObject:
      break;
  }
  assert(false);
  return {};
}

Document Document::Of(const Extent& extent, Budget& budget) {
  Document document(budget);
  Read(*extent.source, extent.offset, extent.length, budget, document, Dialect::kPython);
  return document;
}

Document Document::OfLines(const Extent& extent, Budget& budget) {
  Document document(budget);
  document.Begin(false);
  ReadLines(*extent.source, extent.offset, extent.length, budget, document, Dialect::kPython);
  document.End(false);
  return document;
}

void Document::AddBits(uint64_t bits) {
  bytes_.append(reinterpret_cast<const char*>(&bits), sizeof bits);
}

void Document::Add(Node::Kind kind) {
  bytes_ += static_cast<char>(kind);
  if (open_.empty()) return;
  char* const count = bytes_.data() + open_.back() + kKindSize + kWord;
  const uint64_t more = WordAt(count) + 1;
  std::memcpy(count, &more, sizeof more);
}

void Document::AddNumber(Node::Kind kind, uint64_t bits) {
  Add(kind);
  AddBits(bits);
}

void Document::AddText(std::string_view text) {
  AddBits(text.size());
  bytes_ += text;
}

void Document::Begin(bool is_object) {
  Add(is_object ? Node::Kind::kObject : Node::Kind::kList);
  open_.push_back(bytes_.size() - kKindSize);
  AddBits(0);
  AddBits(0);
}

void Document::End(bool /*is_object*/) {
  const uint64_t end = bytes_.size();
  std::memcpy(bytes_.data() + open_.back() + kKindSize, &end, sizeof end);
  open_.pop_back();
}

void Document::Key(std::string& key) { AddText(key); }

void Document::Text(std::string& text) {
  Add(Node::Kind::kText);
  AddText(text);
}

void Document::Whole(uint64_t number) { AddNumber(Node::Kind::kWhole, number); }

void Document::Other(std::string_view json) {
  if (json == "null") return Add(Node::Kind::kNull);
  if (json == "false") return Add(Node::Kind::kFalse);
  if (json == "true") return Add(Node::Kind::kTrue);
  double number = std::numeric_limits<double>::quiet_NaN();
  if (json.ends_with("Infinity")) {
    const double infinity = std::numeric_limits<double>::infinity();
    number = json.starts_with('-') ? -infinity : infinity;
  } else if (json != "NaN") {
    if (json.find_first_of(".eE") == std::string_view::npos) {
      if (const auto negative = ParseNumber<int64_t>(json)) {
        return AddNumber(Node::Kind::kNegative, static_cast<uint64_t>(*negative));
      }
      Add(Node::Kind::kBig);
      return AddText(json);
    }
    number = DoubleOf(json);
  }
  AddNumber(Node::Kind::kDouble, std::bit_cast<uint64_t>(number));
}

void Copy::Separate() {
  if (json_.empty()) return;
  const char last = json_.back();
  if (last != '{' && last != '[' && last != ':') json_ += ',';
}

void Copy::Begin(bool is_object) {
  Separate();
  json_ += is_object ? '{' : '[';
}

void Copy::End(bool is_object) { json_ += is_object ? '}' : ']'; }

void Copy::Key(std::string& key) {
  Separate();
  AppendString(json_, key);
  json_ += ':';
}

void Copy::Text(std::string& text) {
  Separate();
  AppendString(json_, text);
}

void Copy::Whole(uint64_t number) {
  Separate();
  json_ += std::to_string(number);
}

void Copy::Other(std::string_view json) {
  Separate();
  json_ += json;
}

}  // namespace ckptfs::json
