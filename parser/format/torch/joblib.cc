// An array is an object of the class joblib.numpy_pickle.NumpyArrayWrapper with the attributes
// subclass, shape, order, dtype and numpy_array_alignment_bytes. Behind the BUILD of such an object
// come, unless the last of these is missing or None, a byte with the number of bytes that pad the
// elements to that alignment, and these; then the elements. In place of an array of objects there
// is a pickle of its own.

#include "parser/format/torch/joblib.h"

#include <array>
#include <cerrno>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/codec/pickle/gaps.h"
#include "parser/codec/pickle/length.h"
#include "parser/format/numpy/array.h"
#include "parser/format/torch/attributes.h"
#include "parser/format/torch/bare.h"
#include "parser/format/torch/context.h"
#include "parser/format/torch/numpy_dtype.h"
#include "parser/format/torch/objects.h"

namespace ckptfs::torch {
namespace {

using pickle::Kind;
using pickle::Value;

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
    if (dtype == nullptr || shape == nullptr) Fail(EBADMSG, "an array has no dtype or no shape");
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
  // Of the bytes from `position` on that are no elements.
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

const Value* StateOfJoblibArray(const Value& value) {
  if (!pickle::IsObject(value) || pickle::ObjectOf(value).states().empty()) return nullptr;
  const Value* python_class = ClassOfObject(value);
  const bool is_array = python_class != nullptr &&
                        pickle::IsGlobal(*python_class, "joblib.numpy_pickle", kJoblibArray);
  const Value& state = pickle::ObjectOf(value).states().back();
  return is_array && state.kind == Kind::kDict ? &state : nullptr;
}

Checkpoint ReadJoblib(const Record& record, Reading& reading, uint64_t& length) {
  Storages storages(reading.budget, reading.sidecar, [](std::string_view) {
    return Record{.data = {}, .member = "", .is_in_file = false, .error = "joblib has no storages"};
  });
  Context context{
      .reading = reading,
      .storages = storages,
      .pickle = {},
      .pickle_record = {
          .data = {}, .member = record.member, .is_in_file = record.is_in_file, .error = ""}};
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
