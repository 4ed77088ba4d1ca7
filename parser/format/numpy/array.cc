#include "parser/format/numpy/array.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/layer/strided.h"

namespace ckptfs::numpy {
namespace {

// The steps between neighbours, in elements.
std::vector<uint64_t> StridesOf(const std::vector<uint64_t>& shape, bool is_fortran) {
  std::vector<uint64_t> stride(shape.size(), 1);
  uint64_t step = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const size_t axis = is_fortran ? i : shape.size() - 1 - i;
    stride[axis] = step;
    step *= std::max<uint64_t>(shape[axis], 1);
  }
  return stride;
}

// The unit in which elements without a Dtype are byte-swapped.
Dtype UnitOf(const npy::Type& type) {
  if (!type.is_big_endian) return Dtype::kOpaque;
  assert(type.swap_size == 4 || type.swap_size == 8);
  return type.swap_size == 4 ? Dtype::kUint32 : Dtype::kUint64;
}

View ParseView(const Layout& layout) {
  const npy::Type& type = layout.type;
  View view{.dtype = type.dtype,
            .shape = layout.shape,
            .stride = StridesOf(layout.shape, layout.is_fortran),
            .is_big_endian = type.is_big_endian};
  if (type.dtype == Dtype::kOpaque) {
    view.dtype = UnitOf(type);
    const uint64_t units = type.item_size / ItemSize(view.dtype);
    for (uint64_t& step : view.stride) step *= units;
    view.shape.push_back(units);
    view.stride.push_back(1);
  } else if (type.is_big_endian && type.swap_size != SwapSize(type.dtype)) {
    view.dtype = UnitOf(type);  // complex32 of ml_dtypes.
  }
  return view;
}

}  // namespace

uint64_t CountOf(const std::vector<uint64_t>& shape) {
  uint64_t product = 1;
  for (const uint64_t size : shape) {
    if (__builtin_mul_overflow(product, size, &product)) {
      Fail(EOVERFLOW, "its shape has more than 2^64 elements");
    }
  }
  return product;
}

void SetType(const Layout& layout, Tensor& tensor) {
  const npy::Type& type = layout.type;
  if (type.has_objects)
    Fail(ENOTSUP, "its elements are pickled Python objects, which ckptfs never unpickles");
  CountOf(layout.shape);
  std::vector<uint64_t> shape = layout.shape;
  if (type.dtype == Dtype::kOpaque) shape.push_back(type.item_size);
  if (shape.size() > kMaxDimensions) {
    Fail(ENOTSUP, "has {} dimensions, the bytes of an element included (maximum {})", shape.size(),
         kMaxDimensions);
  }
  tensor.dtype = type.dtype;
  if (type.dtype == Dtype::kOpaque) tensor.foreign_dtype = "numpy." + LittleEndianName(type);
  tensor.shape = std::move(shape);
  tensor.data.length = ByteSize(tensor.dtype, tensor.shape);
}

void SetBytes(const Layout& layout, const Record& stored, const std::shared_ptr<BlockCache>& blocks,
              Tensor& tensor) {
  tensor.member = stored.member;
  stored.Check();
  const uint64_t need = tensor.data.length;
  if (stored.data.length != need) {
    Fail(EBADMSG, "has {} bytes, but its {} elements need {}", stored.data.length,
         CountOf(layout.shape), need);
  }
  const View view = ParseView(layout);
  tensor.is_in_file = stored.is_in_file && IsDense(view);
  if (IsDense(view)) {
    tensor.data = stored.data;
    tensor.file_offset = stored.data.offset;
  } else {
    tensor.data = {MakeStrided(stored.data, view, blocks), 0, need};
  }
}

Record ElementsOf(const npy::ArrayHeader& header, const Record& saved) {
  Record elements = saved;
  elements.data.offset += header.data_offset;
  elements.data.length -= header.data_offset;
  return elements;
}

void FillSaved(npy::ArrayHeader header, const Record& saved,
               const std::shared_ptr<BlockCache>& blocks, Tensor& tensor) {
  tensor.annotations.emplace_back("numpy_dtype", std::move(header.descr));
  if (header.is_fortran) tensor.annotations.emplace_back("fortran_order", "true");
  Record elements = ElementsOf(header, saved);
  const Layout layout{.type = std::move(header.type),
                      .shape = std::move(header.shape),
                      .is_fortran = header.is_fortran};
  SetType(layout, tensor);
  if (elements.data.length > tensor.data.length) {
    const uint64_t rest = elements.data.length - tensor.data.length;
    tensor.annotations.emplace_back("trailing_bytes", std::to_string(rest));
    elements.data.length = tensor.data.length;
  }
  SetBytes(layout, elements, blocks, tensor);
}

}  // namespace ckptfs::numpy
