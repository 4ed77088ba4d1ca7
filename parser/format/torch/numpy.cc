// An array is pickled as _reconstruct(ndarray, (0,), b'b') with the state (version, shape, dtype,
// is_fortran, bytes); with protocol 5 as _frombuffer(bytes, dtype, shape, order). dill and JAX call
// their own functions with all of these: _create_array(_reconstruct, arguments, state, attributes),
// _reconstruct_array(_reconstruct, arguments, state, aval). The state of a masked array also has
// the bytes of the mask and the fill value. The bytes have the byte order of the dtype, whatever
// that of the storages.

#include "parser/format/torch/numpy.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <deque>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/format/numpy/array.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/numpy_dtype.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"
#include "parser/format/torch/value.h"

namespace ckptfs::torch {
namespace {

constexpr size_t kMostOfClass = 1024;  // Bytes: many arrays may share one long name.

// The parts of an array in any pickled form.
struct Parts {
  const Value* shape = nullptr;  // A tuple.
  const Value* type = nullptr;
  bool is_fortran = false;
  const Value* data = nullptr;          // Null if it lies outside of the pickle: see ReadJoblib.
  const Value* python_class = nullptr;  // Null for a numpy.ndarray.
  Values more;                          // After the data: additions of a subclass.
};

// Whether `state` is that of an array. The oldest states have no version.
bool GetState(const Value& state, Parts& parts) {
  if (state.kind != Kind::kTuple) return false;
  Values items = ItemsOf(state);
  if (!items.empty() && items[0].kind == Kind::kInt) items = items.subspan(1);
  if (items.size() < 4 || items[0].kind != Kind::kTuple || items[2].kind > Kind::kInt) return false;
  parts.shape = &items[0];
  parts.type = &items[1];
  parts.is_fortran = items[2].kind != Kind::kNone && items[2].integer != 0;
  parts.data = &items[3];
  parts.more = items.subspan(4);
  return true;
}

// Returns the attributes of an array of joblib, a dict; null for other values. Points into the
// graph.
const Value* StateOfJoblibArray(const Value& value) {
  if (!pickle::IsObject(value) || ObjectOf(value).states().empty()) return nullptr;
  const Value* python_class = ClassOfObject(value);
  const bool is_array = python_class != nullptr &&
                        pickle::IsGlobal(*python_class, "joblib.numpy_pickle", kJoblibArray);
  const Value& state = ObjectOf(value).states().back();
  return is_array && state.kind == Kind::kDict ? &state : nullptr;
}

// Finds the parts of an array. Returns whether all of them are present.
bool GetParts(const Value& value, Parts& parts) {
  if (const Value* state = StateOfJoblibArray(value)) {
    parts = {.shape = AttributeOf(*state, "shape"),
             .type = AttributeOf(*state, "dtype"),
             .python_class = AttributeOf(*state, "subclass")};
    const Value* order = AttributeOf(*state, "order");
    parts.is_fortran = order != nullptr && order->kind == Kind::kText && order->text() == "F";
    return parts.shape != nullptr && parts.shape->kind == Kind::kTuple && parts.type != nullptr;
  }
  const KnownCallable known = CallableOf(value);
  if (known != KnownCallable::kArray && known != KnownCallable::kFromBuffer &&
      known != KnownCallable::kArrayOfState) {
    return false;
  }
  const Values items = ItemsOf(ObjectOf(value).arguments);
  if (known == KnownCallable::kArray) {
    const auto states = ObjectOf(value).states();
    if (states.empty() || !GetState(states.back(), parts)) return false;
    if (!items.empty()) parts.python_class = &items[0];
    return true;
  }
  if (known == KnownCallable::kFromBuffer) {
    if (items.size() != 4 || items[2].kind != Kind::kTuple || !IsText(items[3])) return false;
    parts = {.shape = &items[2],
             .type = &items[1],
             .is_fortran = items[3].text() == "F",
             .data = &items[0]};
    return true;
  }
  if (items.size() < 3 || FindCallable(items[0]) != KnownCallable::kArray ||
      !GetState(items[2], parts)) {
    return false;
  }
  const bool has_class = items[1].kind == Kind::kTuple && !ItemsOf(items[1]).empty();
  if (has_class) parts.python_class = &ItemsOf(items[1])[0];
  return true;
}

// Of _mareconstruct(class, ndarray, (0,), b'b'): `parts.more` is the mask and the fill value.
bool GetMaskedParts(const Value& value, Parts& parts) {
  if (CallableOf(value) != KnownCallable::kMaskedArray) return false;
  const Object& object = ObjectOf(value);
  if (object.states().empty() || !GetState(object.states().back(), parts)) return false;
  return parts.more.size() == 2 && parts.data->kind != Kind::kList &&
         !ItemsOf(object.arguments).empty();
}

std::string ClassOf(const Value& value, const Parts& parts) {
  if (pickle::IsGlobal(ObjectOf(value).target, "jax._src.array", "_reconstruct_array")) {
    return "jax.Array";
  }
  if (parts.python_class == nullptr) return "numpy.ndarray";
  return Repr(*parts.python_class).substr(0, kMostOfClass);
}

numpy::Layout LayoutOf(const Parts& parts, npy::Type type) {
  const Values sizes = ItemsOf(*parts.shape);
  if (sizes.size() > kMaxDimensions) {
    Fail(EBADMSG, "too many dimensions (found {}, maximum {})", sizes.size(), kMaxDimensions);
  }
  std::vector<uint64_t> shape;
  for (const Value& size : sizes) {
    if (size.kind != Kind::kInt || size.integer < 0)
      Fail(EBADMSG, "its shape has an invalid number (found {})", Repr(size));
    shape.push_back(static_cast<uint64_t>(size.integer));
  }
  return {.type = std::move(type), .shape = std::move(shape), .is_fortran = parts.is_fortran};
}

Record RecordOf(const Value& value, const Parts& parts, Context& context) {
  if (parts.data != nullptr) return RecordOfBytes(*parts.data, context);
  const auto found = context.raw_arrays.find(value.node);
  if (found == context.raw_arrays.end()) Fail(EBADMSG, "its bytes are missing");
  Record record = context.pickle_record;
  record.data = found->second;
  return record;
}

void FillParts(const Value& value, const Parts& parts, Context& context, Tensor& tensor) {
  NumpyDtype dtype = NumpyDtypeOf(*parts.type, context.budget);
  const bool is_foreign = dtype.type.dtype == Dtype::kOpaque;
  if (is_foreign) tensor.annotations.emplace_back("numpy_dtype", std::move(dtype.descr));
  const bool is_extension = dtype.scalar_class.starts_with("ml_dtypes.");
  const numpy::Layout layout = LayoutOf(parts, std::move(dtype.type));
  numpy::SetType(layout, tensor);
  if (is_foreign && is_extension) tensor.foreign_dtype = std::move(dtype.scalar_class);
  numpy::SetBytes(layout, RecordOf(value, parts, context), context.reading.blocks, tensor);
}

}  // namespace

bool IsArray(const Value& value) {
  Parts parts;
  return GetParts(value, parts) && (parts.data == nullptr || parts.data->kind != Kind::kList);
}

bool IsMaskedArray(const Value& value) {
  Parts parts;
  return GetMaskedParts(value, parts);
}

std::optional<ObjectArray> ObjectArrayOf(const Value& value) {
  Parts parts;
  if (!GetParts(value, parts) || parts.data == nullptr || parts.data->kind != Kind::kList) {
    return std::nullopt;
  }
  return ObjectArray{.items = ItemsOf(*parts.data), .shape = parts.shape};
}

void FillArray(const Value& value, Context& context, Tensor& tensor) {
  Parts parts;
  if (!GetParts(value, parts)) Fail(EBADMSG, "array: missing shape or bytes");
  tensor.annotations.emplace_back("python_type", json::String(ClassOf(value, parts)));
  if (!parts.more.empty()) {
    std::string attributes;
    for (const Value& attribute : parts.more) {
      attributes += attributes.empty() ? '[' : ',';
      attributes += ValueOf(attribute, context.budget).json;
    }
    tensor.annotations.emplace_back("attributes", attributes + ']');
  }
  FillParts(value, parts, context, tensor);
}

void FillMaskedData(const Value& value, Context& context, Tensor& tensor) {
  Parts parts;
  if (!GetMaskedParts(value, parts)) Fail(EBADMSG, "array: missing shape or bytes");
  FillParts(value, parts, context, tensor);
}

// One bool for each element; of structures, one for each field.
void FillMask(const Value& value, Context& context, Tensor& tensor) {
  Parts parts;
  if (!GetMaskedParts(value, parts)) Fail(EBADMSG, "array: missing mask");
  const Record stored = RecordOfBytes(parts.more[0], context);
  numpy::Layout layout = LayoutOf(parts, {.dtype = Dtype::kBool, .item_size = 1, .name = "|b1"});
  const uint64_t count = numpy::CountOf(layout.shape);
  if (count > 0 && stored.data.length != count && stored.data.length % count == 0) {
    const uint64_t fields = stored.data.length / count;
    layout.type = {.item_size = fields, .name = fmt::format("|V{}", fields)};
  }
  numpy::SetType(layout, tensor);
  numpy::SetBytes(layout, stored, context.reading.blocks, tensor);
}

NumpyScalar ScalarOf(const Value& value, Budget& budget) {
  const Values arguments = ItemsOf(ObjectOf(value).arguments);
  if (arguments.size() != 2)
    Fail(EBADMSG, "invalid numpy scalar (found {} parts, expected 2)", arguments.size());
  std::string decoded;
  const auto bytes = BytesOf(arguments[1], decoded, budget);
  if (!bytes) Fail(EBADMSG, "numpy scalar: missing bytes");
  NumpyScalar scalar{.json = "", .type = NumpyDtypeOf(arguments[0], budget).scalar_class};
  AppendNumpyElement(scalar.json, arguments[0], *bytes, budget);
  return scalar;
}

// An array is an object of the class joblib.numpy_pickle.NumpyArrayWrapper with the attributes
// subclass, shape, order, dtype and numpy_array_alignment_bytes. After the BUILD of such an object
// follow the padding to that alignment (a byte with its length, then the padding; absent if the
// attribute is missing or None) and the elements. An array of objects is a separate pickle in their
// place.

namespace {

// Finds the arrays of one file.
class Arrays {
 public:
  Arrays(const Extent& data, Budget& budget, RawArrays& found)
      : data_(data), budget_(budget), found_(found) {}

  // See pickle::FindGap.
  pickle::Gap Find(const Value& built, uint64_t position) {
    const Value* state = StateOfJoblibArray(built);
    if (state == nullptr) return {};
    const Value* dtype = AttributeOf(*state, "dtype");
    const Value* shape = AttributeOf(*state, "shape");
    if (dtype == nullptr || shape == nullptr) Fail(EBADMSG, "array: missing dtype or shape");
    const npy::Type type = NumpyDtypeOf(*dtype, budget_).type;
    if (type.has_objects) return FindObjects(position);
    uint64_t size = 0;
    if (__builtin_mul_overflow(numpy::CountOf(Numbers(*shape, "shape")), type.item_size, &size)) {
      Fail(EBADMSG, "an array has more than 2^64 bytes");
    }
    const uint64_t padding = PaddingAt(*state, position);
    const uint64_t rest = data_.length - position;
    if (padding > rest || size > rest - padding) {
      Fail(EBADMSG, "the array at byte {} needs {} bytes, but only {} are left", position, size,
           rest);
    }
    budget_.Charge(sizeof(RawArrays::value_type) + 4 * sizeof(void*));
    found_[built.node] = {data_.source, data_.offset + position + padding, size};
    return {.length = padding + size, .replacement = {}};
  }

  // The pickles of arrays of objects.
  const std::deque<pickle::Graph>& objects() const { return graphs_; }

 private:
  // The number of padding bytes at `position`.
  uint64_t PaddingAt(const Value& state, uint64_t position) const {
    const Value* alignment = AttributeOf(state, "numpy_array_alignment_bytes");
    if (alignment == nullptr || alignment->kind == Kind::kNone) return 0;
    if (position >= data_.length) return 1;
    std::array<std::byte, 1> length = {};
    data_.source->ReadAt(data_.offset + position, length);
    return 1 + std::to_integer<uint64_t>(length[0]);
  }

  pickle::Gap FindObjects(uint64_t position) {
    const Extent rest = {data_.source, data_.offset + position, data_.length - position};
    const uint64_t length = pickle::LengthOf(rest, budget_);
    budget_.Charge(length);
    auto& bytes = pickles_.emplace_back(static_cast<size_t>(length));
    data_.source->ReadAt(rest.offset, bytes);
    graphs_.push_back(pickle::Load(bytes, budget_));
    return {.length = length, .replacement = graphs_.back().root()};
  }

  const Extent& data_;
  Budget& budget_;
  RawArrays& found_;
  std::deque<std::vector<std::byte>> pickles_;
  std::deque<pickle::Graph> graphs_;
};

}  // namespace

Checkpoint ReadJoblib(const Record& record, Reading& reading, uint64_t& length) {
  Storages storages(reading.budget, reading.sidecar, [](std::string_view) {
    return Record{.data = {},
                  .member = "",
                  .is_in_file = false,
                  .error = Error(EBADMSG, "joblib has no storages")};
  });
  Context context{
      .reading = reading,
      .storages = storages,
      .pickle = {},
      .pickle_record = {.data = {}, .member = record.member, .is_in_file = record.is_in_file}};
  Arrays arrays(record.data, reading.budget, context.raw_arrays);
  const pickle::Graph graph = pickle::LoadWithGaps(
      record.data, reading.budget,
      [&](const Value& built, uint64_t position) { return arrays.Find(built, position); }, length);
  reading.globals.Add(graph);
  for (const pickle::Graph& objects : arrays.objects()) reading.globals.Add(objects);
  Checkpoint checkpoint;
  AddObjects(graph.root(), context, checkpoint);
  return checkpoint;
}

}  // namespace ckptfs::torch
