#include "tools/ckpt/entries.h"

#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "parser/base/error.h"

namespace ckptfs::ckpt {
namespace {

// The depth of the recursion is that of the tree, which its format has bounded.
void Collect(const Group& group, const std::string& path, std::vector<Entry>& entries) {
  for (const Member& member : group.members) {
    std::string key = path.empty() ? member.key.text : path + "." + member.key.text;
    if (const auto* const child = std::get_if<std::unique_ptr<Group>>(&member.content)) {
      Collect(**child, key, entries);
    } else {
      entries.push_back({std::move(key), &member.content});
    }
  }
}

}  // namespace

std::vector<Entry> EntriesOf(const Checkpoint& checkpoint) {
  std::vector<Entry> entries;
  Collect(checkpoint.root, "", entries);
  return entries;
}

std::vector<TensorEntry> TensorsOf(std::span<const Entry> entries) {
  std::vector<TensorEntry> tensors;
  std::map<std::tuple<const ByteSource*, uint64_t, uint64_t>, size_t> first;
  for (const Entry& entry : entries) {
    const auto* const tensor = std::get_if<Tensor>(entry.content);
    if (tensor == nullptr) continue;
    size_t tied_to = tensors.size();
    const Extent& data = tensor->data;
    if (data.length > 0 && !tensor->error) {
      const std::tuple place(data.source.get(), data.offset, data.length);
      tied_to = first.try_emplace(place, tied_to).first->second;
    }
    tensors.push_back({.key = entry.key, .tensor = tensor, .stored = tensor, .tied_to = tied_to});
  }
  return tensors;
}

void CheckReadable(const Tensor& tensor, std::string_view key) {
  if (!tensor.error) return;
  const int code = tensor.error->code();
  // Not a regular file, a directory, a file where a directory should be.
  const bool is_of_a_file = code == EINVAL || code == EISDIR || code == ENOTDIR;
  throw WithContext(Quoted(key), is_of_a_file ? Error(EIO, tensor.error->what()) : *tensor.error);
}

void ReadInOrder(const Extent& data, const std::function<void(std::span<const std::byte>)>& take) {
  constexpr uint64_t kMostAtOnce = uint64_t{1} << 20U;
  std::vector<std::byte> buffer(std::min(kMostAtOnce, data.length));
  for (uint64_t done = 0; done < data.length;) {
    const std::span piece = std::span(buffer).first(std::min(kMostAtOnce, data.length - done));
    data.source->ReadAt(data.offset + done, piece);
    take(piece);
    done += piece.size();
  }
}

bool Matches(const std::string& key, const std::string& pattern) {
  return pattern.empty() || ::fnmatch(pattern.c_str(), key.c_str(), 0) == 0;
}

std::string DtypeNameOf(const Tensor& tensor) {
  return tensor.foreign_dtype.empty() ? std::string(Name(tensor.dtype)) : tensor.foreign_dtype;
}

uint64_t ElementCountOf(const Tensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t size : tensor.shape) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(count, size, &count)) return 0;  // One of the others is 0.
  }
  return count;
}

}  // namespace ckptfs::ckpt
