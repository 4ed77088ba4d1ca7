#include "parser/format/torch/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/annotations.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/torch/children.h"
#include "parser/format/torch/collections.h"
#include "parser/format/torch/composite.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/storage.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::torch {
namespace {

// Writes one value. Each Write appends the value to `out` and returns its type, which is empty if
// JSON expresses it.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget), types_(budget) {}

  std::string Write(const Value& wrapped);

  std::string TakeText() { return std::move(out_); }

  // The types of what is inside.
  PythonTypes& types() { return types_; }

 private:
  std::string WriteContainer(const Value& value);
  std::string WriteSequence(const Value& value);
  std::string WriteMeaning(const Value& value);
  std::string WriteLeafCall(const Value& value);
  std::string WriteObject(const Interpretation& interpretation);
  void WriteItems(const Interpretation& interpretation, Child::Role role);
  void WritePairs(const Interpretation& interpretation);
  void WriteAttributes(const Interpretation& interpretation, Child::Role role);
  void WriteChild(std::string_view step, const Value& value);
  void WriteRepeated(const Value& value, std::span<const uint64_t> counts);

  Budget& budget_;
  std::string out_;
  PythonTypes types_;
  std::vector<const pickle::Node*> ancestors_;
  std::unordered_set<const pickle::Node*> is_ancestor_;
};

bool IsNumberKey(const Child& child) { return child.key.kind == Kind::kInt; }
bool IsTextKey(const Child& child) { return child.key.kind == Kind::kText; }

std::string Writer::Write(const Value& wrapped) {
  const Value& value = Unwrapped(wrapped);
  return IsLeaf(value) ? AppendLeaf(out_, value, budget_) : WriteContainer(value);
}

std::string Writer::WriteContainer(const Value& value) {
  if (is_ancestor_.contains(value.node)) {
    out_ += "\"...\"";
    return "cycle";
  }
  if (ancestors_.size() >= static_cast<size_t>(kMaxDepth)) {
    Fail(EFBIG, "objects are nested more than {} levels deep", kMaxDepth);
  }
  if (ClassifyTensor(value) != TensorKind::kNone) {  // An attribute of another tensor.
    out_ += fmt::format(R"({{"class":{}}})", json::String(TensorClassOf(UnwrapTensor(value))));
    return "tensor";
  }
  const size_t begin = out_.size();
  ancestors_.push_back(value.node);
  is_ancestor_.insert(value.node);
  std::string type = IsSequence(value) ? WriteSequence(value) : WriteMeaning(value);
  is_ancestor_.erase(value.node);
  ancestors_.pop_back();
  budget_.Charge(kCostOfValue + (out_.size() > begin ? 2 : 0));
  return type;
}

// A list may have millions of leaves, for which no children are created.
std::string Writer::WriteSequence(const Value& value) {
  const Values items = ItemsOf(value);
  budget_.Work(items.size());
  out_ += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += ',';
    WriteChild(std::to_string(i), items[i]);
  }
  out_ += ']';
  return value.kind == Kind::kList ? "" : std::string(NameOfSequence(value));
}

std::string Writer::WriteMeaning(const Value& value) {
  const Interpretation interpretation = Interpret(value, budget_);
  std::string type = interpretation.type;
  const auto count_keys = [&](bool (*is_of_kind)(const Child&)) {
    return static_cast<size_t>(std::ranges::count_if(interpretation.children, is_of_kind));
  };
  const bool has_attributes =
      std::ranges::count(interpretation.children, Child::Role::kAttribute, &Child::role) != 0;
  switch (interpretation.kind) {
    case ValueKind::kLeaf:
      type = WriteLeafCall(value);
      break;
    case ValueKind::kSequence:
      if (has_attributes) {
        type = WriteObject(interpretation);
        break;
      }
      WriteItems(interpretation, Child::Role::kItem);
      if (type == "list") type.clear();
      break;
    case ValueKind::kMapping:
      if (has_attributes) {
        type = WriteObject(interpretation);
      } else if (count_keys(IsTextKey) == interpretation.children.size()) {
        WriteAttributes(interpretation, Child::Role::kPair);
        if (type == "dict") type.clear();
      } else if (count_keys(IsNumberKey) == interpretation.children.size()) {
        WriteAttributes(interpretation, Child::Role::kPair);
        type += "[int]";
      } else {
        WritePairs(interpretation);
        type += "[pairs]";
      }
      break;
    case ValueKind::kModule:
    case ValueKind::kObject:
      type = WriteObject(interpretation);
      break;
  }
  return type;
}

void Writer::WriteChild(std::string_view step, const Value& value) {
  const auto inside = types_.Enter(step);
  types_.Add(Write(value));
}

void Writer::WriteItems(const Interpretation& interpretation, Child::Role role) {
  const bool is_stack = interpretation.type == tensordict::ClassOf(tensordict::kNonTensorStackType);
  out_ += '[';
  size_t index = 0;
  for (const Child& child : interpretation.children) {
    if (child.role != role) continue;
    if (index > 0) out_ += ',';
    const auto inside = types_.Enter(std::to_string(index++));
    const std::vector<uint64_t> counts =
        is_stack ? BatchSizeOfValue(child.value) : std::vector<uint64_t>();
    WriteRepeated(child.value, counts);
  }
  out_ += ']';
}

// Writes one value for a batch of that size: nested lists in which it is repeated.
void Writer::WriteRepeated(const Value& value, std::span<const uint64_t> counts) {
  if (counts.empty()) {
    types_.Add(Write(value));
    return;
  }
  const size_t begin = out_.size();
  {
    const auto inside = types_.Enter("0");
    WriteRepeated(value, counts.subspan(1));
  }
  const std::string once = out_.substr(begin);
  constexpr uint64_t kMost = 4 << 20;  // Bytes.
  const uint64_t count = counts[0];
  if (count > 1 && (count > kMost || (once.size() + 1) * count > kMost)) {
    Fail(EOVERFLOW, "a value repeated {} times for its batch size exceeds {} bytes of JSON", count,
         kMost);
  }
  constexpr uint64_t kCopies = 4;  // Until meta.json has it.
  budget_.Charge(kCopies * (once.size() + 1) * count);
  budget_.WorkOnBytes((once.size() + 1) * count);
  out_.erase(begin);
  out_ += '[';
  for (uint64_t i = 0; i < count; ++i) out_.append(i > 0 ? "," : "").append(once);
  out_ += ']';
}

void Writer::WritePairs(const Interpretation& interpretation) {
  out_ += '[';
  size_t index = 0;
  for (const Child& child : interpretation.children) {
    if (child.role == Child::Role::kAttribute) continue;
    const auto inside = types_.Enter(std::to_string(index));
    out_ += index++ > 0 ? ",[" : "[";
    WriteChild("0", child.key);
    out_ += ',';
    WriteChild("1", child.value);
    out_ += ']';
  }
  out_ += ']';
}

void Writer::WriteAttributes(const Interpretation& interpretation, Child::Role role) {
  out_ += '{';
  bool is_first = true;
  for (const Child& child : interpretation.children) {
    if (child.role != role) continue;
    if (!std::exchange(is_first, false)) out_ += ',';
    const Key key = KeyOf(child.key);
    const size_t begin = out_.size();
    json::AppendString(out_, key.text);
    budget_.Charge(key.text.size() + 2 * (out_.size() - begin));
    out_ += ':';
    WriteChild(key.text, child.value);
  }
  out_ += '}';
}

std::string Writer::WriteObject(const Interpretation& interpretation) {
  const auto has = [&](Child::Role role) {
    return std::ranges::count(interpretation.children, role, &Child::role) != 0;
  };
  constexpr uint64_t kCostOfNames = 64;  // "class", "state" and the like.
  budget_.Charge(2 * (kCostOfNames + interpretation.type.size()));
  out_ += "{\"class\":";
  json::AppendString(out_, interpretation.type);
  if (has(Child::Role::kItem)) {
    out_ += ",\"items\":";
    const auto inside = types_.Enter("items");
    WriteItems(interpretation, Child::Role::kItem);
  }
  if (has(Child::Role::kPair)) {
    out_ += ",\"pairs\":";
    const auto inside = types_.Enter("pairs");
    WritePairs(interpretation);
  }
  if (has(Child::Role::kAttribute)) {
    out_ += ",\"state\":";
    const auto inside = types_.Enter("state");
    WriteAttributes(interpretation, Child::Role::kAttribute);
  }
  out_ += '}';
  return "object";
}

// The arguments of numbers may be any values in a hostile file.
std::string Writer::WriteLeafCall(const Value& value) {
  const KnownCallable known = FindCallable(ObjectOf(value).target);
  const Values arguments = ItemsOf(ObjectOf(value).arguments);
  if (known == KnownCallable::kNumber && arguments.size() == 1) return Write(arguments[0]);
  if (known != KnownCallable::kComplex || arguments.size() != 2) {
    return AppendLeafCall(out_, value, budget_);
  }
  out_ += '[';
  Write(arguments[0]);
  out_ += ',';
  Write(arguments[1]);
  out_ += ']';
  return "complex";
}

// A tensor as a key, as in the state of an optimizer. Python would print its elements; its storage
// identifies it.
std::string TensorText(const Value& tensor) {
  const InnermostTensor innermost = UnwrapTensor(tensor);
  std::string text = fmt::format("<{}", TensorClassOf(innermost));
  if (!innermost.arguments.empty() && innermost.arguments[0].kind == Kind::kPersistent) {
    try {
      text += fmt::format(" in storage {}", ParseStorageId(innermost.arguments[0]).key);
    } catch (const Error&) {  // Its storage has no valid key.
    }
  }
  return text + ">";
}

}  // namespace

ckptfs::Value ValueOf(const Value& value, Budget& budget) {
  Writer writer(budget);
  ckptfs::Value result;
  result.python_type = writer.Write(value);
  budget.Charge(2 * result.python_type.size());
  writer.types().AddTo(result);
  result.json = writer.TakeText();
  return result;
}

Key KeyOf(const Value& key) {
  if (key.kind == Kind::kText) return {std::string(key.text()), Key::Kind::kText};
  if (pickle::IsObject(key) && ClassifyTensor(key) != TensorKind::kNone) {
    return {TensorText(key), Key::Kind::kOther};
  }
  const bool is_number =
      key.kind == Kind::kInt || key.kind == Kind::kBigInt || key.kind == Kind::kDecimal;
  return {Repr(key), is_number ? Key::Kind::kNumber : Key::Kind::kOther};
}

}  // namespace ckptfs::torch
