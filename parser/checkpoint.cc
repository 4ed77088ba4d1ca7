#include "parser/checkpoint.h"

#include <cerrno>

#include "parser/error.h"

namespace ckptfs {
namespace {

void ValidateTensor(const Tensor& tensor) {
  if (tensor.shape.size() > kMaxDimensions) {
    Fail(EBADMSG, "has {} dimensions, but {} is the most", tensor.shape.size(), kMaxDimensions);
  }
  const Extent& data = tensor.data;
  if (const uint64_t want = ByteSize(tensor.dtype, tensor.shape); data.length != want) {
    Fail(EBADMSG, "has {} bytes, but its dtype and shape need {}", data.length, want);
  }
  if (!tensor.error.empty()) return;
  const uint64_t size = data.source->size();
  if (data.offset > size || data.length > size - data.offset) {
    Fail(EBADMSG, "its {} bytes at byte {} end after the {} of {}", data.length, data.offset, size,
         data.source->name());
  }
}

// The depth of the recursion is that of the tree, which its format has bounded.
void ValidateGroup(const Group& group) {
  for (const Member& member : group.members) {
    if (const auto* child = std::get_if<std::unique_ptr<Group>>(&member.content)) {
      ValidateGroup(**child);
    } else if (const auto* tensor = std::get_if<Tensor>(&member.content)) {
      try {
        ValidateTensor(*tensor);
      } catch (const Error& e) {
        throw WithContext("tensor " + Quoted(member.key.text), e);
      }
    }
  }
}

}  // namespace

void Validate(const Checkpoint& checkpoint) { ValidateGroup(checkpoint.root); }

}  // namespace ckptfs
