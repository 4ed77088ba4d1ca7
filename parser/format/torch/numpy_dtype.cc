// A dtype is dtype('f4', False, True) with the state (3, '<', (base, shape) or None, names, fields,
// item size, alignment, flags[, (metadata, (unit, count, 1, 1))]). The item size applies to texts
// and structures only; otherwise it is part of the name. Types outside NumPy are given by their
// class: dtype(ml_dtypes.bfloat16, False, True); so are records.

#include "parser/format/torch/numpy_dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/nesting_level.h"
#include "parser/codec/npy/element.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/leaf.h"

namespace ckptfs::torch {
namespace {

constexpr size_t kMostOfType = 32;  // Bytes, of a type. Honest ones have 19.
constexpr size_t kMostFields = 10'000;
constexpr int kMostTypeDepth = 16;  // Nested structures.

// The names of scalar classes, which a dtype may be made of.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"bool", "b1"},        {"bool_", "b1"},       {"byte", "i1"},         {"bytes", "S0"},
    {"bytes_", "S0"},      {"cdouble", "c16"},    {"clongdouble", "c32"}, {"complex", "c16"},
    {"complex128", "c16"}, {"complex256", "c32"}, {"complex64", "c8"},    {"complex_", "c16"},
    {"csingle", "c8"},     {"datetime64", "M8"},  {"double", "f8"},       {"float", "f8"},
    {"float128", "f16"},   {"float16", "f2"},     {"float32", "f4"},      {"float64", "f8"},
    {"float_", "f8"},      {"half", "f2"},        {"int", "i8"},          {"int16", "i2"},
    {"int32", "i4"},       {"int64", "i8"},       {"int8", "i1"},         {"int_", "i8"},
    {"intc", "i4"},        {"intp", "i8"},        {"long", "i8"},         {"longdouble", "f16"},
    {"longlong", "i8"},    {"object", "O"},       {"object_", "O"},       {"record", "V0"},
    {"short", "i2"},       {"single", "f4"},      {"str", "U0"},          {"str_", "U0"},
    {"timedelta64", "m8"}, {"ubyte", "u1"},       {"uint", "u8"},         {"uint16", "u2"},
    {"uint32", "u4"},      {"uint64", "u8"},      {"uint8", "u1"},        {"uintc", "u4"},
    {"uintp", "u8"},       {"ulong", "u8"},       {"ulonglong", "u8"},    {"ushort", "u2"},
    {"void", "V0"},
};
static_assert(std::is_sorted(std::begin(kAliases), std::end(kAliases)));

// A dtype without its nested ones.
struct Level {
  npy::Type type;
  bool is_record = false;
  Values names;                   // Of a structure: its fields, in order, ...
  const Value* fields = nullptr;  // ... and a dict: name -> (dtype, offset[, title]).
  const Value* base = nullptr;    // Each element is an array of these, ...
  std::vector<uint64_t> shape;    // ... of this shape.
};

struct Field {
  std::string_view name;
  std::string_view title;
  const Value* dtype = nullptr;
  uint64_t offset = 0;
  uint64_t size = 0;
};

bool IsSize(const Value& value) { return value.kind == Kind::kInt && value.integer >= 0; }

// The unit of a time, in brackets: "[ns]".
std::string UnitOf(Values state, Budget& budget) {
  if (state.size() < 9 || state[8].kind != Kind::kTuple || ItemsOf(state[8]).size() != 2) return "";
  const Value& unit = ItemsOf(state[8])[1];
  if (unit.kind != Kind::kTuple || ItemsOf(unit).size() < 2) return "";
  std::string decoded;
  const auto name = BytesOf(ItemsOf(unit)[0], decoded, budget);
  const Value& count = ItemsOf(unit)[1];
  const npy::TimeUnit known =
      npy::TimeUnitNamed(name.value_or(""), count.kind == Kind::kInt ? count.integer : 0);
  if (known.name.empty() || known.count < 1) Fail(EBADMSG, "unsupported numpy unit of time");
  if (known.name == "generic") return "";
  return fmt::format("[{}{}]", known.count == 1 ? "" : std::to_string(known.count), known.name);
}

// Returns the name in the first argument of a dtype: "f4", "bfloat16".
std::string_view NameOf(const Value& dtype, bool& is_class) {
  const bool is_dtype =
      pickle::IsObject(dtype) && FindCallable(ObjectOf(dtype).target) == KnownCallable::kNumpyDtype;
  if (!is_dtype) Fail(EBADMSG, "its dtype is not a numpy.dtype");
  const Values arguments = ItemsOf(ObjectOf(dtype).arguments);
  is_class = !arguments.empty() && arguments[0].kind == Kind::kGlobal;
  if (!is_class && (arguments.empty() || !IsText(arguments[0]))) {
    Fail(EBADMSG, "its dtype has no name");
  }
  const std::string_view name = is_class ? ItemsOf(arguments[0])[1].text() : arguments[0].text();
  if (name.size() > kMostOfType) Fail(EBADMSG, "unsupported numpy dtype {}", Quoted(name));
  return name;
}

npy::Type TypeOf(std::string_view name, char order, const std::string& unit) {
  // In any module: ml_dtypes, or its predecessors.
  if (const npy::MlDtype* ml = npy::MlDtypeNamed(name)) {
    return {.dtype = ml->dtype,
            .item_size = ml->item_size,
            .swap_size = ml->swap_size,
            .is_big_endian = order == '>' && ml->swap_size > 1,
            .name = std::string(name)};
  }
  const auto* alias = std::ranges::lower_bound(kAliases, name, {}, [](auto& a) { return a.first; });
  if (alias != std::end(kAliases) && alias->first == name) name = alias->second;
  auto known = npy::TypeNamed(order, fmt::format("{}{}", name, unit));
  if (!known) Fail(EBADMSG, "unsupported numpy dtype {}", Quoted(name));
  return *std::move(known);
}

// Sets the size of texts and structures, which the state of the dtype gives.
void SetItemSize(npy::Type& type, uint64_t size) {
  constexpr std::string_view kSized = "SUV";
  if (type.name.size() < 2 || kSized.find(type.name[1]) == std::string_view::npos) return;
  if (size % type.swap_size != 0) {
    Fail(EBADMSG, "element size mismatch for {} (found {}, expected a multiple of {})",
         Quoted(type.name), size, type.swap_size);
  }
  type.item_size = size;
  type.name = fmt::format("{}{}", type.name.substr(0, 2), size / type.swap_size);
}

Level LevelOf(const Value& dtype, Budget& budget) {
  bool is_class = false;
  std::string_view name = NameOf(dtype, is_class);
  const Value built = ObjectOf(dtype).state();
  const Values state = built.kind == Kind::kTuple ? ItemsOf(built) : Values();
  char order = '=';
  if (!name.empty() && std::string_view("<>|=").find(name[0]) != std::string_view::npos) {
    order = name[0];
    name.remove_prefix(1);
  }
  if (state.size() > 1 && IsText(state[1]) && !state[1].text().empty()) order = state[1].text()[0];

  Level level{.type = TypeOf(name, order, UnitOf(state, budget))};
  level.is_record = is_class && name == "record";
  if (state.size() > 5 && IsSize(state[5])) {
    SetItemSize(level.type, static_cast<uint64_t>(state[5].integer));
  }
  // A structure whose fields are objects has no bytes; bit 0 of the flags marks it.
  const bool has_flags = state.size() > 7 && state[7].kind == Kind::kInt;
  if (has_flags && (state[7].integer & 1) != 0) level.type.has_objects = true;
  if (state.size() > 4 && state[3].kind == Kind::kTuple && state[4].kind == Kind::kDict) {
    level.names = ItemsOf(state[3]);
    level.fields = &state[4];
  }
  if (state.size() > 2 && state[2].kind == Kind::kTuple && ItemsOf(state[2]).size() == 2) {
    const Values base_and_shape = ItemsOf(state[2]);
    level.base = &base_and_shape[0];
    const Value& shape = base_and_shape[1];
    const Values sizes = shape.kind == Kind::kTuple ? ItemsOf(shape) : Values(&shape, 1);
    if (sizes.size() > kMaxDimensions || !std::ranges::all_of(sizes, IsSize)) {
      Fail(EBADMSG, "its dtype: invalid shape");
    }
    for (const Value& size : sizes) level.shape.push_back(static_cast<uint64_t>(size.integer));
  }
  return level;
}

// Walks nested structures. A hostile dtype may share its parts, and contain itself.
class TypeWalk {
 public:
  TypeWalk(std::string& out, Budget& budget) : out_(out), budget_(budget) {}

  // Appends the type `level` as the header of a .npy file has it.
  void AppendDescr(const Level& level);

  // Appends an element.
  void AppendElement(const Level& level, std::string_view bytes);

 private:
  NestingLevel Enter() {
    if (depth_ == kMostTypeDepth) {
      Fail(EBADMSG, "its dtype: structures are nested more than {} levels deep", kMostTypeDepth);
    }
    return NestingLevel(depth_);
  }

  // Charges what AppendString will append of `text`, twice, as `out_` may grow.
  void AppendText(std::string_view text) {
    budget_.Charge(12 * text.size() + 64);
    json::AppendString(out_, text);
  }

  std::vector<Field> FieldsOf(const Level& level);
  void AppendFields(const Level& level, const std::vector<Field>& fields);
  void AppendOffsets(const Level& level, const std::vector<Field>& fields);
  void AppendShape(const std::vector<uint64_t>& shape) {
    out_ += fmt::format("[{}]", fmt::join(shape, ","));
  }
  void AppendItems(const Level& base, std::span<const uint64_t> shape, std::string_view bytes);

  std::string& out_;
  Budget& budget_;
  size_t fields_ = 0;
  int depth_ = 0;
};

std::vector<Field> TypeWalk::FieldsOf(const Level& level) {
  fields_ += level.names.size();
  if (fields_ > kMostFields) {
    Fail(EBADMSG, "its dtype has more than {} fields", kMostFields);
  }
  const Values pairs = ItemsOf(*level.fields);
  budget_.Work(level.names.size() + pairs.size());
  if (pairs.size() > 4 * kMostFields) Fail(EBADMSG, "its dtype has too many fields");
  std::unordered_map<std::string_view, const Value*> by_name;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (IsText(pairs[i])) by_name.insert_or_assign(pairs[i].text(), &pairs[i + 1]);
  }
  std::vector<Field> fields;
  for (const Value& name : level.names) {
    const auto found = IsText(name) ? by_name.extract(name.text()) : decltype(by_name)::node_type();
    if (found.empty() || found.mapped()->kind != Kind::kTuple ||
        ItemsOf(*found.mapped()).size() < 2 || !IsSize(ItemsOf(*found.mapped())[1])) {
      Fail(EBADMSG, "its dtype has a field without a type or an offset");
    }
    const Values parts = ItemsOf(*found.mapped());
    Field field{.name = name.text(), .title = "", .dtype = &parts[0]};
    field.offset = static_cast<uint64_t>(parts[1].integer);
    if (parts.size() > 2 && IsText(parts[2])) field.title = parts[2].text();
    field.size = LevelOf(parts[0], budget_).type.item_size;
    if (field.offset > level.type.item_size || field.size > level.type.item_size - field.offset) {
      Fail(EBADMSG, "its dtype has a field that ends beyond the {} bytes of an element",
           level.type.item_size);
    }
    fields.push_back(field);
  }
  return fields;
}

void TypeWalk::AppendDescr(const Level& level) {
  const NestingLevel nesting = Enter();
  if (level.base != nullptr) {
    out_ += '[';
    AppendDescr(LevelOf(*level.base, budget_));
    out_ += ',';
    AppendShape(level.shape);
    out_ += ']';
    return;
  }
  if (level.fields == nullptr) {
    AppendText(level.type.name);
    return;
  }
  const std::vector<Field> fields = FieldsOf(level);
  uint64_t end = 0;
  const bool is_ordered = std::ranges::all_of(fields, [&](const Field& field) {
    return std::exchange(end, field.offset + field.size) <= field.offset;
  });
  is_ordered ? AppendFields(level, fields) : AppendOffsets(level, fields);
}

// [["a","<f4"],["","|V4"],["b","<i8",[2]]]: gaps between fields are fields without a name.
void TypeWalk::AppendFields(const Level& level, const std::vector<Field>& fields) {
  out_ += '[';
  uint64_t end = 0;
  const auto append_padding = [&](uint64_t next) {
    if (next > end) out_ += fmt::format(R"(["","|V{}"],)", next - end);
  };
  for (const Field& field : fields) {
    append_padding(field.offset);
    end = field.offset + field.size;
    out_ += '[';
    if (!field.title.empty()) {
      out_ += '[';
      AppendText(field.title);
      out_ += ',';
    }
    AppendText(field.name);
    out_ += field.title.empty() ? "," : "],";
    const Level inner = LevelOf(*field.dtype, budget_);
    if (inner.base != nullptr) {
      AppendDescr(LevelOf(*inner.base, budget_));
      out_ += ',';
      AppendShape(inner.shape);
    } else {
      AppendDescr(inner);
    }
    out_ += "],";
  }
  append_padding(level.type.item_size);
  if (out_.back() == ',') out_.pop_back();
  out_ += ']';
}

// Fields that overlap or are not in the order of their offsets have no such list. numpy.dtype
// accepts this form for them.
void TypeWalk::AppendOffsets(const Level& level, const std::vector<Field>& fields) {
  const auto append_list = [&](std::string_view key, auto append) {
    out_ += fmt::format(R"("{}":[)", key);
    for (const Field& field : fields) {
      append(field);
      out_ += &field == &fields.back() ? "]," : ",";
    }
  };
  out_ += '{';
  append_list("names", [&](const Field& field) { AppendText(field.name); });
  append_list("formats", [&](const Field& field) { AppendDescr(LevelOf(*field.dtype, budget_)); });
  append_list("offsets", [&](const Field& field) { out_ += std::to_string(field.offset); });
  out_ += fmt::format(R"("itemsize":{}}})", level.type.item_size);
}

void TypeWalk::AppendElement(const Level& level, std::string_view bytes) {
  const NestingLevel nesting = Enter();
  if (bytes.size() != level.type.item_size) {
    Fail(EBADMSG, "numpy scalar: size mismatch (found {1}, expected {0})", level.type.item_size,
         bytes.size());
  }
  if (level.type.has_objects) Fail(ENOTSUP, "numpy scalar: unsupported Python objects");
  if (level.base != nullptr) {
    AppendItems(LevelOf(*level.base, budget_), level.shape, bytes);
  } else if (level.fields != nullptr) {
    out_ += '{';
    for (const Field& field : FieldsOf(level)) {
      if (out_.back() != '{') out_ += ',';
      AppendText(field.name);
      out_ += ':';
      AppendElement(LevelOf(*field.dtype, budget_), bytes.substr(field.offset, field.size));
    }
    out_ += '}';
  } else {
    budget_.Charge(2 * (4 * bytes.size() + 64));
    npy::AppendElement(out_, level.type, bytes);
  }
}

// An array in an element, as nested lists.
void TypeWalk::AppendItems(const Level& base, std::span<const uint64_t> shape,
                           std::string_view bytes) {
  if (shape.empty()) return AppendElement(base, bytes);
  const uint64_t count = shape[0];
  if (count > 0 && bytes.size() % count != 0) {
    Fail(EBADMSG, "its dtype: shape and size mismatch");
  }
  out_ += '[';
  for (uint64_t i = 0; i < count; ++i) {
    budget_.Work(1);
    budget_.Charge(2 * sizeof(char));
    if (i > 0) out_ += ',';
    const uint64_t size = bytes.size() / count;
    AppendItems(base, shape.subspan(1), bytes.substr(i * size, size));
  }
  out_ += ']';
}

std::string ScalarClassOf(const Level& level) {
  const npy::Type& type = level.type;
  if (npy::MlDtypeNamed(type.name) != nullptr) return "ml_dtypes." + type.name;
  if (type.dtype != Dtype::kOpaque) return fmt::format("numpy.{}", Name(type.dtype));
  if (level.is_record) return "numpy.record";
  const std::string_view code = std::string_view(type.name).substr(1);
  switch (code.empty() ? '\0' : code[0]) {
    case 'M':
      return fmt::format("numpy.datetime64{}", code.substr(2));
    case 'm':
      return fmt::format("numpy.timedelta64{}", code.substr(2));
    case 'U':
      return "numpy.str_";
    case 'S':
      return "numpy.bytes_";
    case 'V':
      return "numpy.void";
    case 'O':
      return "numpy.object_";
    case 'f':
      return "numpy.longdouble";
    case 'c':
      return "numpy.clongdouble";
    default:
      return "numpy." + LittleEndianName(type);
  }
}

}  // namespace

NumpyDtype NumpyDtypeOf(const Value& value, Budget& budget) {
  NumpyDtype dtype;
  Level level = LevelOf(value, budget);
  TypeWalk(dtype.descr, budget).AppendDescr(level);
  dtype.scalar_class = ScalarClassOf(level);
  dtype.type = std::move(level.type);
  return dtype;
}

void AppendNumpyElement(std::string& out, const Value& dtype, std::string_view bytes,
                        Budget& budget) {
  TypeWalk(out, budget).AppendElement(LevelOf(dtype, budget), bytes);
}

}  // namespace ckptfs::torch
