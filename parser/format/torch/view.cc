#include "parser/format/torch/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <string>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::torch {
namespace {

// What tells a gathered tensor from all others.
std::string IdentityOf(const Extent& extent, const View& view) {
  return fmt::format("{} {} {} {}{}{} {} {}", static_cast<const void*>(extent.source.get()),
                     extent.offset, Name(view.dtype), view.is_big_endian, view.is_conjugated,
                     view.is_negated, fmt::join(view.shape, ","), fmt::join(view.stride, ","));
}

// A tensor that claims much more than is stored (stride 0 repeats elements at no cost) would fill
// the disk of whoever copies it.
constexpr uint64_t kMostRepeated = uint64_t{64} << 30;  // In bytes.
constexpr uint64_t kMostRepetition = 1024;

void CheckRepetition(uint64_t length, uint64_t stored) {
  if (length > kMostRepeated && length / kMostRepetition > stored) {
    Fail(EOVERFLOW, "repeats its {} stored bytes to {}, which is beyond our limit", stored, length);
  }
}

// The view `view` of `storage` from element `offset` on.
void SetData(const Storage& storage, uint64_t offset, const View& view, Context& context,
             Tensor& tensor) {
  const uint64_t length = tensor.data.length;
  const Record& record = storage.record;
  if (!record.error.empty()) throw Error(record.error_code, record.error);
  uint64_t begin = 0;
  const bool is_beyond = __builtin_mul_overflow(offset, ItemSize(view.dtype), &begin) ||
                         (length > 0 && begin > storage.size);
  const uint64_t reach = is_beyond ? 0 : ReachOf(view);
  if (is_beyond || (length > 0 && reach > storage.size - begin)) {
    Fail(EBADMSG, "reaches {} bytes from element {} on, but {} has {} bytes", reach, offset,
         record.member, storage.size);
  }
  if (length == 0) begin = 0;
  CheckRepetition(length, reach);
  const Extent stored = {record.data.source, record.data.offset + begin, reach};
  if (IsDense(view)) {
    tensor.data = {stored.source, stored.offset, length};
    tensor.is_in_file = record.is_in_file;
    tensor.file_offset = stored.offset;
    return;
  }
  ByteSourcePtr& gathered = context.gathered[IdentityOf(stored, view)];
  if (!gathered) gathered = MakeStrided(stored, view, context.reading.blocks);
  tensor.data = {gathered, 0, length};
}

// Whether the elements lie in the storage as they lie in the tensor, whatever is done to each.
bool IsDenseOrder(View view) {
  view.is_big_endian = view.is_conjugated = view.is_negated = false;
  return IsDense(view);
}

}  // namespace

void SetShape(const View& view, Tensor& tensor) {
  tensor.dtype = view.dtype;
  tensor.shape = view.shape;
  tensor.data.length = ByteSize(view.dtype, view.shape);
  if (view.stride.size() != view.shape.size()) {
    Fail(EBADMSG, "has {} sizes, but {} strides", view.shape.size(), view.stride.size());
  }
}

void FillView(const Storage& storage, uint64_t offset, const View& view, Context& context,
              Tensor& tensor) {
  tensor.member = storage.record.member;
  SetShape(view, tensor);
  if (!IsDenseOrder(view)) {
    tensor.annotations.emplace_back("stride", fmt::format("[{}]", fmt::join(view.stride, ",")));
  }
  if (offset != 0) tensor.annotations.emplace_back("storage_offset", std::to_string(offset));
  SetData(storage, offset, view, context, tensor);
}

}  // namespace ckptfs::torch
