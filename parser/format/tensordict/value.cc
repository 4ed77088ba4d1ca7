#include "parser/format/tensordict/value.h"

#include <utility>

#include "parser/base/json.h"
#include "parser/format/common/python_types.h"

namespace ckptfs::tensordict {
namespace {

// What each value is charged for, and each byte of its text: meta.json has it once more.
constexpr uint64_t kCostOfValue = 16;
constexpr uint64_t kCopies = 3;

// Each Write appends a value and returns its type, which is empty if JSON tells it.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget), types_(budget) {}

  // The depth of the recursion is that of the document, which its reader has bounded.
  std::string_view Write(json::Node node) {
    if (node.is_list()) return WriteList(node);
    if (node.is_object()) return WriteObject(node);
    const size_t begin = out_.size();
    const std::string_view type = json::AppendLeaf(out_, node);
    budget_.Charge(kCostOfValue + kCopies * (out_.size() - begin));
    return type;
  }

  std::string TakeText() { return std::move(out_); }

  // The types of what is inside.
  PythonTypes& types() { return types_; }

 private:
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
    const auto inside = types_.Enter(step);
    types_.Tell(Write(value));
  }

  Budget& budget_;
  std::string out_;
  PythonTypes types_;
};

}  // namespace

Value ValueOf(json::Node node, Budget& budget) {
  Writer writer(budget);
  Value value;
  value.python_type = writer.Write(node);
  writer.types().AddTo(value);
  value.json = writer.TakeText();
  return value;
}

}  // namespace ckptfs::tensordict
