#include "fs/tensordict_files.h"

#include <memory>
#include <utility>

#include "fs/tensordict_meta.h"
#include "parser/layer/broken.h"
#include "parser/secret_hash.h"

namespace ckptfs {

namespace {

// Bytes that cannot be had, for which `content` says why.
template <typename T>
Extent BrokenOf(const T& content) {
  return {.source = std::make_shared<BrokenSource>(content.member, content.data.length,
                                                   content.error, content.error_code),
          .offset = 0,
          .length = content.data.length};
}

}  // namespace

uint32_t TensorFiles::Add(Table& table) {
  if (!table.error.empty()) table.data = BrokenOf(table);
  return builder_.AddFile(std::move(table.data));
}

uint32_t TensorFiles::Add(Tensor& tensor, std::string_view view, std::string_view key) {
  Extent& data = tensor.data;
  if (!tensor.error.empty()) {
    data = BrokenOf(tensor);
    return AddNew(tensor, key);
  }
  if (data.length == 0) return AddNew(tensor, key);  // No bytes are no view of the same bytes.

  const auto count = static_cast<uint32_t>(views_.size());
  const uint32_t number = views_.try_emplace(std::string(view), count).first->second;
  uint64_t hash = Mix(number, reinterpret_cast<uintptr_t>(data.source.get()));
  hash = Mix(Mix(hash, data.offset), data.length);
  const uint32_t known = known_.Find(hash, [&](uint32_t i) {
    const Inode& file = builder_.Get(files_[i].first);
    return files_[i].second == number && file.source == data.source && file.offset == data.offset &&
           file.length == data.length;
  });
  if (known != HashIndex::kNone) return files_[known].first;
  known_.Insert(hash, static_cast<uint32_t>(files_.size()));
  return files_.emplace_back(AddNew(tensor, key), number).first;
}

uint32_t TensorFiles::AddNew(Tensor& tensor, std::string_view key) {
  const uint32_t inode = builder_.AddFile(std::move(tensor.data));
  if (has_attributes_) Describe(inode, tensor, key);
  return inode;
}

void TensorFiles::Describe(uint32_t inode, const Tensor& tensor, std::string_view key) {
  const bool is_foreign = tensor.dtype == Dtype::kOpaque && !tensor.foreign_dtype.empty();
  std::string shape;
  AppendShape(shape, tensor.shape);
  Attributes attributes;
  constexpr size_t kMost = size_t{64}
                           << 10U;  // Bytes that the kernel hands out; meta.json has all.
  const auto add = [&attributes](std::string_view name, std::string value) {
    if (value.size() > kMost) return;
    attributes.emplace_back("user.ckptfs." + std::string(name), std::move(value));
  };
  add("dtype", is_foreign ? tensor.foreign_dtype : std::string(Name(tensor.dtype)));
  add("shape", std::move(shape));
  add("key", std::string(key));
  if (!tensor.member.empty()) add("member", tensor.member);
  if (tensor.is_in_file) add("offset", std::to_string(tensor.file_offset));
  if (!tensor.error.empty()) add("error", tensor.error);
  for (const auto& [name, json] : tensor.notes) add(name, json);
  builder_.SetAttributes(inode, std::move(attributes));
}

}  // namespace ckptfs
