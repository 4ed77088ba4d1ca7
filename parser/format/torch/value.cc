#include "parser/format/torch/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "parser/error.h"
#include "parser/format/torch/bare.h"
#include "parser/format/torch/bytes.h"
#include "parser/format/torch/composite.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/storage.h"
#include "parser/format/torch/tensor.h"
#include "parser/format/torch/vocabulary.h"
#include "parser/json.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using Values = std::span<const pickle::Value>;

// Writes one value. Each Write appends the value to `out` and returns its type, which is empty if
// JSON tells it.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget) {}

  std::string Write(const pickle::Value& wrapped);

  std::string TakeText() { return std::move(out_); }

  // The types of what is inside, as an object in JSON; empty if there are none.
  std::string TypesInside() const { return types_.empty() ? "" : fmt::format("{{{}}}", types_); }

 private:
  static constexpr uint64_t kCostOfValue = 16;  // So that empty containers are not for free.

  std::string WriteContainer(const pickle::Value& value);
  std::string WriteLeafCall(const pickle::Value& value);
  std::string WriteObject(const Meaning& meaning);
  void WriteItems(const Meaning& meaning, Child::Role role);
  void WritePairs(const Meaning& meaning);
  void WriteAttributes(const Meaning& meaning, Child::Role role);
  void WriteChild(std::string_view step, const pickle::Value& value);
  std::string WriteHex(std::string_view bytes, std::string type);

  std::string WriteText(std::string_view text, std::string type) {
    json::AppendString(out_, text);
    return type;
  }

  Budget& budget_;
  std::string out_;
  std::string types_;    // "pointer":"type", ...
  std::string pointer_;  // To what is being written.
  std::vector<const pickle::Node*> ancestors_;
  std::unordered_set<const pickle::Node*> is_ancestor_;
};

bool IsNumberKey(const Child& child) { return child.key.kind == Kind::kInt; }
bool IsTextKey(const Child& child) { return child.key.kind == Kind::kText; }

std::string JoinPath(const pickle::Object& object) {
  const bool is_windows = pickle::GlobalName(object.target).find("Windows") != std::string::npos;
  std::string path;
  for (const pickle::Value& part : ItemsOf(object.arguments)) {
    if (part.kind != Kind::kText) continue;
    const bool needs_separator = !path.empty() && path.back() != '/' && path.back() != '\\';
    if (needs_separator) path += is_windows ? '\\' : '/';
    path += part.text();
  }
  return path;
}

std::string DeviceName(Values arguments) {
  if (arguments.empty() || arguments[0].kind != Kind::kText) return "?";
  std::string name(arguments[0].text());
  if (arguments.size() > 1 && arguments[1].kind == Kind::kInt) {
    name += fmt::format(":{}", arguments[1].integer);
  }
  return name;
}

std::string Writer::WriteHex(std::string_view bytes, std::string type) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  budget_.Charge(2 * bytes.size());
  out_ += '"';
  for (const char c : bytes) {
    out_ += kDigits[static_cast<unsigned char>(c) >> 4U];
    out_ += kDigits[static_cast<unsigned char>(c) & 0xFU];
  }
  out_ += '"';
  return type;
}

std::string Writer::Write(const pickle::Value& wrapped) {
  const pickle::Value& value = Unwrapped(wrapped);
  const size_t begin = out_.size();
  std::string type;
  switch (value.kind) {
    case Kind::kNone:
      out_ += "null";
      break;
    case Kind::kBool:
      out_ += value.integer != 0 ? "true" : "false";
      break;
    case Kind::kInt:
      fmt::format_to(std::back_inserter(out_), "{}", value.integer);
      break;
    case Kind::kBigInt:
    case Kind::kDecimal:
      type = WriteText(Decimal(value), "int");
      break;
    case Kind::kFloat:
      json::AppendDouble(out_, value.real);
      if (!std::isfinite(value.real)) type = "float";
      break;
    case Kind::kText:
      json::AppendString(out_, value.text());
      break;
    case Kind::kBytes:
      return WriteHex(value.text(), "bytes");
    case Kind::kByteArray:
      return WriteHex(value.text(), "bytearray");
    case Kind::kGlobal:
      type = WriteText(Repr(value), DtypeOf(value) ? "torch.dtype" : "name");
      break;
    case Kind::kPersistent:
      out_ += R"({"class":"torch.storage"})";
      break;
    default:
      return WriteContainer(value);
  }
  budget_.Charge(kCostOfValue + 2 * (out_.size() - begin));  // A text that grows is there twice.
  return type;
}

std::string Writer::WriteContainer(const pickle::Value& value) {
  if (is_ancestor_.contains(value.node)) return WriteText("...", "cycle");
  if (ancestors_.size() >= static_cast<size_t>(kMaxDepth)) {
    Fail(EFBIG, "objects lie in one another more than {} deep", kMaxDepth);
  }
  if (TensorFormOf(value) != TensorForm::kNone) {  // In the attributes of another tensor.
    out_ += fmt::format(R"({{"class":{}}})", json::String(TensorClassOf(BareOf(value))));
    return "tensor";
  }
  const size_t begin = out_.size();
  Meaning meaning = Understand(value, budget_);
  ancestors_.push_back(value.node);
  is_ancestor_.insert(value.node);
  std::string type = meaning.type;
  const auto count_keys = [&](bool (*is_of_kind)(const Child&)) {
    return static_cast<size_t>(std::ranges::count_if(meaning.children, is_of_kind));
  };
  const bool has_attributes =
      std::ranges::count(meaning.children, Child::Role::kAttribute, &Child::role) != 0;
  switch (meaning.form) {
    case Form::kLeaf:
      type = WriteLeafCall(value);
      break;
    case Form::kSequence:
      if (has_attributes) {
        type = WriteObject(meaning);
        break;
      }
      WriteItems(meaning, Child::Role::kItem);
      if (type == "list") type.clear();
      break;
    case Form::kMapping:
      if (has_attributes) {
        type = WriteObject(meaning);
      } else if (count_keys(IsTextKey) == meaning.children.size()) {
        WriteAttributes(meaning, Child::Role::kPair);
        if (type == "dict") type.clear();
      } else if (count_keys(IsNumberKey) == meaning.children.size()) {
        WriteAttributes(meaning, Child::Role::kPair);
        type += "[int]";
      } else {
        WritePairs(meaning);
        type += "[pairs]";
      }
      break;
    case Form::kModule:
    case Form::kObject:
      type = WriteObject(meaning);
      break;
  }
  is_ancestor_.erase(value.node);
  ancestors_.pop_back();
  budget_.Charge(kCostOfValue + (out_.size() > begin ? 2 : 0));
  return type;
}

void Writer::WriteChild(std::string_view step, const pickle::Value& value) {
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
  const std::string type = Write(value);
  if (!type.empty()) {
    budget_.Charge(2 * (pointer_.size() + type.size()));
    if (!types_.empty()) types_ += ',';
    json::AppendString(types_, pointer_);
    types_ += ':';
    json::AppendString(types_, type);
  }
  pointer_.resize(length);
}

void Writer::WriteItems(const Meaning& meaning, Child::Role role) {
  out_ += '[';
  size_t index = 0;
  for (const Child& child : meaning.children) {
    if (child.role != role) continue;
    if (index > 0) out_ += ',';
    WriteChild(std::to_string(index++), child.value);
  }
  out_ += ']';
}

void Writer::WritePairs(const Meaning& meaning) {
  out_ += '[';
  size_t index = 0;
  for (const Child& child : meaning.children) {
    if (child.role == Child::Role::kAttribute) continue;
    const size_t length = pointer_.size();
    pointer_ += fmt::format("/{}", index);
    out_ += index++ > 0 ? ",[" : "[";
    WriteChild("0", child.key);
    out_ += ',';
    WriteChild("1", child.value);
    out_ += ']';
    pointer_.resize(length);
  }
  out_ += ']';
}

void Writer::WriteAttributes(const Meaning& meaning, Child::Role role) {
  out_ += '{';
  bool is_first = true;
  for (const Child& child : meaning.children) {
    if (child.role != role) continue;
    if (!std::exchange(is_first, false)) out_ += ',';
    const Key key = KeyOf(child.key);
    budget_.Charge(key.text.size());
    json::AppendString(out_, key.text);
    out_ += ':';
    WriteChild(key.text, child.value);
  }
  out_ += '}';
}

std::string Writer::WriteObject(const Meaning& meaning) {
  const auto has = [&](Child::Role role) {
    return std::ranges::count(meaning.children, role, &Child::role) != 0;
  };
  constexpr uint64_t kCostOfNames = 64;  // "class", "state" and the like.
  budget_.Charge(2 * (kCostOfNames + meaning.type.size()));
  out_ += "{\"class\":";
  json::AppendString(out_, meaning.type);
  const size_t length = pointer_.size();
  if (has(Child::Role::kItem)) {
    out_ += ",\"items\":";
    pointer_ += "/items";
    WriteItems(meaning, Child::Role::kItem);
    pointer_.resize(length);
  }
  if (has(Child::Role::kPair)) {
    out_ += ",\"pairs\":";
    pointer_ += "/pairs";
    WritePairs(meaning);
    pointer_.resize(length);
  }
  if (has(Child::Role::kAttribute)) {
    out_ += ",\"state\":";
    pointer_ += "/state";
    WriteAttributes(meaning, Child::Role::kAttribute);
    pointer_.resize(length);
  }
  out_ += '}';
  return "object";
}

std::string Writer::WriteLeafCall(const pickle::Value& value) {
  const pickle::Object& object = ObjectOf(value);
  const Values arguments = ItemsOf(object.arguments);
  const Known known = KnownCallable(object.target);
  std::string decoded;
  switch (known) {
    case Known::kEncode:
    case Known::kBytes:
    case Known::kByteArray:
      if (const auto bytes = BytesOf(value, decoded, budget_)) {
        return WriteHex(*bytes, known == Known::kByteArray ? "bytearray" : "bytes");
      }
      break;
    case Known::kBytesIO: {
      const pickle::Value state = object.state();
      const bool has_bytes = state.kind == Kind::kTuple && !ItemsOf(state).empty();
      const auto bytes = has_bytes ? BytesOf(ItemsOf(state)[0], decoded, budget_) : std::nullopt;
      return WriteHex(bytes.value_or(""), "_io.BytesIO");
    }
    case Known::kNumber:
      if (arguments.size() == 1) return Write(arguments[0]);
      break;
    case Known::kComplex:
      if (arguments.size() == 2) {
        out_ += '[';
        Write(arguments[0]);
        out_ += ',';
        Write(arguments[1]);
        out_ += ']';
        return "complex";
      }
      break;
    case Known::kPrintedCall:
      return WriteText(Repr(value), Repr(value).starts_with("slice") ? "slice" : "range");
    case Known::kGetattr:
      if (arguments.size() == 2 && arguments[1].kind == Kind::kText) {
        return WriteText(fmt::format("{}.{}", Repr(arguments[0]), arguments[1].text()), "name");
      }
      break;
    case Known::kPath:
      return WriteText(JoinPath(object), pickle::GlobalName(object.target));
    case Known::kDevice:
      return WriteText(DeviceName(arguments), "torch.device");
    case Known::kLayout:
      if (arguments.size() == 1 && arguments[0].kind == Kind::kText) {
        return WriteText(arguments[0].text(), "torch.layout");
      }
      break;
    case Known::kScalar:
    case Known::kNumpyDtype:
      try {
        if (known == Known::kNumpyDtype) return WriteText(NumpyTypeOf(value).name, "numpy.dtype");
        NumpyScalar scalar = ScalarOf(value, budget_);
        out_ += scalar.json;
        return scalar.type;
      } catch (const Error& e) {
        if (e.code() == EFBIG) throw;
        return WriteText(fmt::format("damaged: {}", e.what()), "numpy");
      }
    default:
      break;
  }
  return WriteText(Repr(value), "call");
}

// A tensor that is a key, as in the state of an optimizer. Python prints its elements; what tells
// it from the others is its storage.
std::string TensorText(const pickle::Value& tensor) {
  const Bare bare = BareOf(tensor);
  std::string text = fmt::format("<{}", TensorClassOf(bare));
  if (!bare.arguments.empty() && bare.arguments[0].kind == Kind::kPersistent) {
    try {
      text += fmt::format(" in storage {}", StorageIdOf(bare.arguments[0]).key);
    } catch (const Error&) {  // It has none that could be named.
    }
  }
  return text + ">";
}

}  // namespace

ckptfs::Value ValueOf(const pickle::Value& value, Budget& budget) {
  Writer writer(budget);
  ckptfs::Value result;
  result.python_type = writer.Write(value);
  if (std::string types = writer.TypesInside(); !types.empty()) {
    result.notes.emplace_back("python_types", std::move(types));
  }
  result.json = writer.TakeText();
  return result;
}

Key KeyOf(const pickle::Value& key) {
  if (key.kind == Kind::kText) return {std::string(key.text()), Key::Kind::kText};
  if (pickle::IsObject(key) && TensorFormOf(key) != TensorForm::kNone) {
    return {TensorText(key), Key::Kind::kOther};
  }
  const bool is_number =
      key.kind == Kind::kInt || key.kind == Kind::kBigInt || key.kind == Kind::kDecimal;
  return {Repr(key), is_number ? Key::Kind::kNumber : Key::Kind::kOther};
}

}  // namespace ckptfs::torch
