#include "parser/format/tensordict/value.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "parser/json.h"

namespace ckptfs::tensordict {
namespace {

using Kind = json::Node::Kind;

// What each value is charged for, and each byte of its text: meta.json has it once more.
constexpr uint64_t kCostOfValue = 16;
constexpr uint64_t kCopies = 3;

// Each Write appends a value and returns its type, which is empty if JSON tells it.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget) {}

  // The depth of the recursion is that of the document, which its reader has bounded.
  std::string_view Write(json::Node node) {
    if (node.is_list()) return WriteList(node);
    if (node.is_object()) return WriteObject(node);
    const size_t begin = out_.size();
    const std::string_view type = WriteLeaf(node);
    budget_.Charge(kCostOfValue + kCopies * (out_.size() - begin));
    return type;
  }

  std::string TakeText() { return std::move(out_); }

  // The types of what is inside, as an object in JSON; empty if there are none.
  std::string TypesInside() const { return types_.empty() ? "" : fmt::format("{{{}}}", types_); }

 private:
  std::string_view WriteLeaf(json::Node node) {
    switch (node.kind()) {
      case Kind::kFalse:
        out_ += "false";
        return "";
      case Kind::kTrue:
        out_ += "true";
        return "";
      case Kind::kWhole:
        out_ += std::to_string(node.whole());
        return "";
      case Kind::kNegative:
        out_ += std::to_string(node.negative());
        return "";
      case Kind::kBig:
        json::AppendString(out_, node.text());
        return "int";
      case Kind::kDouble:
        json::AppendDouble(out_, node.number());
        return std::isfinite(node.number()) ? "" : "float";
      case Kind::kText:
        json::AppendString(out_, node.text());
        return "";
      default:
        out_ += "null";
        return "";
    }
  }

  std::string_view WriteList(json::Node node) {
    budget_.Charge(kCostOfValue);
    out_ += '[';
    json::Items items(node);
    for (size_t index = 0; const auto item = items.Next(); ++index) {
      if (index > 0) out_ += ',';
      WriteChild(std::to_string(index), *item);
    }
    out_ += ']';
    return "";
  }

  std::string_view WriteObject(json::Node node) {
    budget_.Charge(kCostOfValue);
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : json::UniqueMembers(node, budget_)) {
      if (!std::exchange(is_first, false)) out_ += ',';
      budget_.Charge(kCopies * (key.size() + 4));
      json::AppendString(out_, key);
      out_ += ':';
      WriteChild(key, value);
    }
    out_ += '}';
    return "";
  }

  void WriteChild(std::string_view step, json::Node value) {
    const size_t length = pointer_.size();
    pointer_ += '/';
    for (const char c : step) {
      if (c == '~') {
        pointer_ += "~0";
      } else if (c == '/') {
        pointer_ += "~1";
      } else {
        pointer_ += c;
      }
    }
    if (const std::string_view type = Write(value); !type.empty()) {
      budget_.Charge(kCopies * (pointer_.size() + type.size()));
      if (!types_.empty()) types_ += ',';
      json::AppendString(types_, pointer_);
      types_ += ':';
      json::AppendString(types_, type);
    }
    pointer_.resize(length);
  }

  Budget& budget_;
  std::string out_;
  std::string types_;    // "pointer":"type", ...
  std::string pointer_;  // To what is being written.
};

}  // namespace

Value ValueOf(json::Node node, Budget& budget) {
  Writer writer(budget);
  Value value;
  value.python_type = writer.Write(node);
  if (std::string types = writer.TypesInside(); !types.empty()) {
    value.notes.emplace_back("python_types", std::move(types));
  }
  value.json = writer.TakeText();
  return value;
}

}  // namespace ckptfs::tensordict
