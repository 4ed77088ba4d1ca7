#include "parser/format/torch/leaf.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/numpy_dtype.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/repr.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::torch {
bool IsText(const Value& value) { return value.kind == Kind::kText || value.kind == Kind::kBytes; }

std::optional<std::string> BytesOfLatin1(std::string_view text) {
  CountWork(text.size() / 4);
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const utf8::Character next = utf8::Decode(text);
    if (!next.is_valid || next.code > 0xFF) return std::nullopt;
    bytes += static_cast<char>(next.code);
    text.remove_prefix(next.length);
  }
  return bytes;
}

std::optional<std::string_view> BytesOf(const Value& value, std::string& decoded, Budget& budget) {
  const auto is_bytes = [](const Value& v) {
    return v.kind == Kind::kBytes || v.kind == Kind::kByteArray;
  };
  if (is_bytes(value) || value.kind == Kind::kText) return value.text();  // Python 2's str.
  if (!pickle::IsObject(value)) return std::nullopt;
  const Object* object = &ObjectOf(value);
  Values arguments = ItemsOf(object->arguments);
  KnownCallable known = FindCallable(object->target);
  if (known == KnownCallable::kBytes || known == KnownCallable::kByteArray) {
    if (arguments.empty()) return "";
    if (is_bytes(arguments[0])) return arguments[0].text();
    if (pickle::IsObject(arguments[0])) {  // bytearray(_codecs.encode(...)): protocol 2 again.
      object = &ObjectOf(arguments[0]);
      known = FindCallable(object->target);
      arguments = ItemsOf(object->arguments);
    } else {
      known = KnownCallable::
          kEncode;  // bytearray(text, "latin-1"): as Python 2 and old protocols have it.
    }
  }
  if (known == KnownCallable::kBytes && arguments.empty()) return "";
  if (known != KnownCallable::kEncode || arguments.empty() || arguments[0].kind != Kind::kText) {
    return std::nullopt;
  }
  budget.Charge(arguments[0].length);
  auto bytes = BytesOfLatin1(arguments[0].text());
  if (!bytes) return std::nullopt;
  decoded = std::move(*bytes);
  return decoded;
}

Record RecordOfBytes(const Value& value, Context& context) {
  Record record{.data = {}, .member = context.pickle_record.member, .is_in_file = false};
  std::string decoded;
  const auto bytes = BytesOf(value, decoded, context.budget);
  if (!bytes) Fail(EBADMSG, "its bytes are missing");
  const char* begin = reinterpret_cast<const char*>(context.pickle.data());
  const bool is_in_pickle =
      !bytes->empty() && bytes->data() >= begin && bytes->data() < begin + context.pickle.size();
  if (is_in_pickle && context.pickle_record.is_in_file) {
    const Extent& pickle = context.pickle_record.data;
    record.is_in_file = true;
    record.data = {pickle.source, pickle.offset + static_cast<uint64_t>(bytes->data() - begin),
                   bytes->size()};
    return record;
  }
  const uint64_t length = bytes->size();
  if (bytes->data() != decoded.data()) {
    context.budget.Charge(length);
    decoded = *bytes;
  }
  record.data = {std::make_shared<MemorySource>(std::move(decoded)), 0, length};
  return record;
}

namespace {

// Many calls may share one long text.
std::string AppendText(std::string& out, std::string_view text, std::string type, Budget& budget) {
  const size_t begin = out.size();
  json::AppendString(out, text);
  budget.Charge(2 * (out.size() - begin));
  return type;
}

std::string AppendBytes(std::string& out, std::string_view bytes, std::string type,
                        Budget& budget) {
  budget.Charge(2 * bytes.size());
  out += '"';
  AppendHex(out, bytes);
  out += '"';
  return type;
}

std::string JoinPath(const Object& object, Budget& budget) {
  const bool is_windows = pickle::GlobalName(object.target).find("Windows") != std::string::npos;
  std::string path;
  for (const Value& part : ItemsOf(object.arguments)) {
    if (part.kind != Kind::kText) continue;
    budget.Charge(part.length);
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

}  // namespace

bool IsLeaf(const Value& value) {
  return value.kind <= Kind::kGlobal || value.kind == Kind::kPersistent;
}

std::string AppendLeaf(std::string& out, const Value& value, Budget& budget) {
  const size_t begin = out.size();
  std::string type;
  switch (value.kind) {
    case Kind::kNone:
      out += "null";
      break;
    case Kind::kBool:
      out += value.integer != 0 ? "true" : "false";
      break;
    case Kind::kInt:
      fmt::format_to(std::back_inserter(out), "{}", value.integer);
      break;
    case Kind::kBigInt:
    case Kind::kDecimal:
      json::AppendString(out, Decimal(value));
      type = "int";
      break;
    case Kind::kFloat:
      json::AppendDouble(out, value.real);
      if (!std::isfinite(value.real)) type = "float";
      break;
    case Kind::kText:
      json::AppendString(out, value.text());
      break;
    case Kind::kBytes:
      return AppendBytes(out, value.text(), "bytes", budget);
    case Kind::kByteArray:
      return AppendBytes(out, value.text(), "bytearray", budget);
    case Kind::kGlobal:
      json::AppendString(out, Repr(value));
      type = DtypeOf(value) ? "torch.dtype" : "name";
      break;
    case Kind::kPersistent:
      out += R"({"class":"torch.storage"})";
      break;
    default:
      break;
  }
  budget.Charge(kCostOfValue + 2 * (out.size() - begin));  // Twice: a string that grows is copied.
  return type;
}

std::string AppendLeafCall(std::string& out, const Value& call, Budget& budget) {
  const Object& object = ObjectOf(call);
  const Values arguments = ItemsOf(object.arguments);
  const KnownCallable known = FindCallable(object.target);
  if (known == KnownCallable::kReconstructor || IsStandard(known)) {
    if (const auto text = StandardText(call, budget)) {
      return AppendText(out, *text, pickle::GlobalName(*ClassOfObject(call)), budget);
    }
  }
  std::string decoded;
  switch (known) {
    case KnownCallable::kEncode:
    case KnownCallable::kBytes:
    case KnownCallable::kByteArray:
      if (const auto bytes = BytesOf(call, decoded, budget)) {
        return AppendBytes(out, *bytes, known == KnownCallable::kByteArray ? "bytearray" : "bytes",
                           budget);
      }
      break;
    case KnownCallable::kBytesIO: {
      const Value state = object.state();
      const bool has_bytes = state.kind == Kind::kTuple && !ItemsOf(state).empty();
      const auto bytes = has_bytes ? BytesOf(ItemsOf(state)[0], decoded, budget) : std::nullopt;
      return AppendBytes(out, bytes.value_or(""), "_io.BytesIO", budget);
    }
    case KnownCallable::kPrintedCall:
      return AppendText(out, Repr(call), Repr(call).starts_with("slice") ? "slice" : "range",
                        budget);
    case KnownCallable::kGetattr:
      if (arguments.size() == 2 && arguments[1].kind == Kind::kText) {
        return AppendText(out, fmt::format("{}.{}", Repr(arguments[0]), arguments[1].text()),
                          "name", budget);
      }
      break;
    case KnownCallable::kPath:
      return AppendText(out, JoinPath(object, budget), pickle::GlobalName(object.target), budget);
    case KnownCallable::kDevice:
      return AppendText(out, DeviceName(arguments), "torch.device", budget);
    case KnownCallable::kLayout:
      if (arguments.size() == 1 && arguments[0].kind == Kind::kText) {
        return AppendText(out, arguments[0].text(), "torch.layout", budget);
      }
      break;
    case KnownCallable::kScalar:
    case KnownCallable::kNumpyDtype:
      try {
        if (known == KnownCallable::kNumpyDtype) {
          out += NumpyDtypeOf(call, budget).descr;
          return "numpy.dtype";
        }
        NumpyScalar scalar = ScalarOf(call, budget);
        budget.Charge(2 * (scalar.json.size() + scalar.type.size()));
        out += scalar.json;
        return scalar.type;
      } catch (const Error& e) {
        if (e.code() == EFBIG) throw;
        return AppendText(out, fmt::format("corrupt: {}", e.what()), "numpy", budget);
      }
    default:
      break;
  }
  return AppendText(out, Repr(call), "call", budget);
}

}  // namespace ckptfs::torch
