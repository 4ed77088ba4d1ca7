// An array is pickled as _reconstruct(ndarray, (0,), b'b') that then gets the state (version,
// shape, dtype, is_fortran, bytes); with protocol 5 as _frombuffer(bytes, dtype, shape, order). The
// bytes are in the byte order of the dtype, whatever the storages of tensors are in. A dtype is
// dtype('f4', False, True) that then gets (3, '<', subdtype, names, fields, item size, alignment,
// flags); the item size counts for texts and structures only, else it is in the name.

#include "parser/format/torch/numpy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "parser/error.h"
#include "parser/format/numpy/array.h"
#include "parser/format/torch/bytes.h"
#include "parser/format/torch/repr.h"
#include "parser/json.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

Known CallableOf(const Value& value) {
  return pickle::IsObject(value) ? KnownCallable(ObjectOf(value).target) : Known::kUnknown;
}

// What an array is made of, whichever way it is spelled.
struct Parts {
  Values shape;
  const Value* type = nullptr;
  bool is_fortran = false;
  const Value* data = nullptr;
};

// Whether both are there: anything else is no array that we can read.
bool GetParts(const Value& value, Parts& parts) {
  const Known known = CallableOf(value);
  if (known == Known::kArray) {
    const Value state = ObjectOf(value).state();
    if (state.kind != Kind::kTuple || ItemsOf(state).size() != 5) return false;
    const Values items = ItemsOf(state);
    if (items[1].kind != Kind::kTuple || items[3].kind > Kind::kInt) return false;
    const bool is_fortran = items[3].kind != Kind::kNone && items[3].integer != 0;
    parts = {ItemsOf(items[1]), &items[2], is_fortran, &items[4]};
    return true;
  }
  if (known == Known::kFromBuffer) {
    const Values items = ItemsOf(ObjectOf(value).arguments);
    if (items.size() != 4 || items[2].kind != Kind::kTuple || !IsText(items[3])) return false;
    parts = {ItemsOf(items[2]), &items[1], items[3].text() == "F", &items[0]};
    return true;
  }
  return false;
}

// The unit of a time, which is in the metadata of its dtype: "[ns]".
std::string UnitOf(Values state) {
  if (state.size() != 9 || state[8].kind != Kind::kTuple || ItemsOf(state[8]).size() != 2)
    return "";
  const Value& unit = ItemsOf(state[8])[1];
  if (unit.kind != Kind::kTuple || ItemsOf(unit).empty() || !IsText(ItemsOf(unit)[0])) return "";
  const Value& count = ItemsOf(unit).size() > 1 ? ItemsOf(unit)[1] : unit;
  const bool has_count = count.kind == Kind::kInt && count.integer != 1;
  return fmt::format("[{}{}]", has_count ? std::to_string(count.integer) : "",
                     ItemsOf(unit)[0].text());
}

template <typename T>
T Load(std::string_view bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

double HalfToDouble(uint16_t half) {
  const int exponent = (half >> 10U) & 0x1F;
  const int fraction = half & 0x3FF;
  const double sign = (half & 0x8000U) != 0 ? -1 : 1;
  if (exponent == 0x1F) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

// A float32 prints as NumPy prints it, with the digits that tell it from its neighbours.
void AppendFloat(std::string& out, float number) {
  if (!std::isfinite(number)) {
    json::AppendDouble(out, number);
    return;
  }
  const std::string text = fmt::format("{}", number);
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

// Appends a number in JSON. `bytes` are little-endian and as long as the type says.
void AppendNumber(std::string& out, Dtype dtype, std::string_view bytes) {
  switch (dtype) {
    case Dtype::kBool:
      out += bytes[0] != 0 ? "true" : "false";
      return;
    case Dtype::kInt8:
      out += std::to_string(Load<int8_t>(bytes));
      return;
    case Dtype::kUint8:
      out += std::to_string(Load<uint8_t>(bytes));
      return;
    case Dtype::kInt16:
      out += std::to_string(Load<int16_t>(bytes));
      return;
    case Dtype::kUint16:
      out += std::to_string(Load<uint16_t>(bytes));
      return;
    case Dtype::kInt32:
      out += std::to_string(Load<int32_t>(bytes));
      return;
    case Dtype::kUint32:
      out += std::to_string(Load<uint32_t>(bytes));
      return;
    case Dtype::kInt64:
      out += std::to_string(Load<int64_t>(bytes));
      return;
    case Dtype::kUint64:
      out += std::to_string(Load<uint64_t>(bytes));
      return;
    case Dtype::kFloat16:
      json::AppendDouble(out, HalfToDouble(Load<uint16_t>(bytes)));
      return;
    case Dtype::kFloat32:
      AppendFloat(out, Load<float>(bytes));
      return;
    case Dtype::kFloat64:
      json::AppendDouble(out, Load<double>(bytes));
      return;
    case Dtype::kComplex64:
      out += '[';
      AppendFloat(out, Load<float>(bytes));
      out += ',';
      AppendFloat(out, Load<float>(bytes.substr(4)));
      out += ']';
      return;
    case Dtype::kComplex128:
      out += '[';
      json::AppendDouble(out, Load<double>(bytes));
      out += ',';
      json::AppendDouble(out, Load<double>(bytes.substr(8)));
      out += ']';
      return;
    default:
      json::AppendString(out, fmt::format("{:02x}", fmt::join(bytes, "")));
  }
}

}  // namespace

npy::Type NumpyTypeOf(const Value& value) {
  if (CallableOf(value) != Known::kNumpyDtype) Fail(EBADMSG, "its dtype is no numpy.dtype");
  const Values arguments = ItemsOf(ObjectOf(value).arguments);
  if (arguments.empty() || !IsText(arguments[0])) Fail(EBADMSG, "its dtype has no name");
  constexpr uint32_t kLongestName = 256;  // Bytes.
  if (arguments[0].length > kLongestName) {
    Fail(EBADMSG, "its dtype has a name of {} bytes", arguments[0].length);
  }
  const Value built = ObjectOf(value).state();
  const Values state = built.kind == Kind::kTuple ? ItemsOf(built) : Values();
  const bool has_order = state.size() > 1 && IsText(state[1]) && !state[1].text().empty();
  const char order = has_order ? state[1].text()[0] : '|';
  const std::string code = fmt::format("{}{}", arguments[0].text(), UnitOf(state));
  const auto known = npy::TypeNamed(order, code);
  npy::Type type = known ? *known
                         : npy::Type{.has_objects = code.starts_with('O'),
                                     .name = fmt::format("{}{}", order, code)};
  if (type.dtype != Dtype::kOpaque) return type;
  const bool has_size = state.size() > 5 && state[5].kind == Kind::kInt && state[5].integer >= 0;
  if (has_size) type.item_size = static_cast<uint64_t>(state[5].integer);
  if (type.item_size % type.swap_size != 0) {
    Fail(EBADMSG, "its elements have {} bytes, but those of {} a multiple of {}", type.item_size,
         Quoted(type.name), type.swap_size);
  }
  // A structure whose fields are objects has no bytes either: bit 0 of the flags says so.
  const bool has_flags = state.size() > 7 && state[7].kind == Kind::kInt;
  if (has_flags && (state[7].integer & 1) != 0) type.has_objects = true;
  return type;
}

bool IsArray(const Value& value) {
  Parts parts;
  if (!GetParts(value, parts)) return false;
  return parts.data->kind != Kind::kList;  // Objects are pickled one by one.
}

void FillArray(const Value& value, Context& context, Tensor& tensor) {
  Parts parts;
  if (!GetParts(value, parts)) Fail(EBADMSG, "its array has no shape or no bytes");
  tensor.notes.emplace_back("python_type", "\"numpy.ndarray\"");
  if (parts.shape.size() > kMaxDimensions) {
    Fail(EBADMSG, "has {} dimensions, but {} is the most", parts.shape.size(), kMaxDimensions);
  }
  std::vector<uint64_t> shape;
  for (const Value& size : parts.shape) {
    if (size.kind != Kind::kInt || size.integer < 0) Fail(EBADMSG, "its shape has {}", Repr(size));
    shape.push_back(static_cast<uint64_t>(size.integer));
  }
  const numpy::Layout layout{
      .type = NumpyTypeOf(*parts.type), .shape = std::move(shape), .is_fortran = parts.is_fortran};
  numpy::SetType(layout, tensor);
  numpy::SetBytes(layout, RecordOfBytes(*parts.data, context), context.reading.panels, tensor);
}

NumpyScalar ScalarOf(const Value& value, Budget& budget) {
  const Values arguments = ItemsOf(ObjectOf(value).arguments);
  if (arguments.size() != 2) Fail(EBADMSG, "a numpy scalar has {} parts, not 2", arguments.size());
  const npy::Type type = NumpyTypeOf(arguments[0]);
  std::string decoded;
  const auto bytes = BytesOf(arguments[1], decoded, budget);
  if (!bytes || bytes->size() != type.item_size) {
    Fail(EBADMSG, "a numpy scalar of {} bytes has {}", type.item_size, bytes ? bytes->size() : 0);
  }
  std::string little(*bytes);
  if (type.is_big_endian) {
    const auto width = static_cast<size_t>(type.swap_size);
    for (size_t i = 0; i + width <= little.size(); i += width) {
      std::reverse(little.data() + i, little.data() + i + width);
    }
  }
  NumpyScalar scalar;
  AppendNumber(scalar.json, type.dtype, little);
  scalar.type = type.dtype == Dtype::kOpaque ? "numpy." + LittleEndianName(type)
                                             : fmt::format("numpy.{}", Name(type.dtype));
  return scalar;
}

}  // namespace ckptfs::torch
