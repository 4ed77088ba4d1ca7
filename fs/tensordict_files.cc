#include "fs/tensordict_files.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>

#include "fs/tensordict_meta.h"
#include "fs/tensordict_names.h"
#include "parser/base/hash.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {
namespace {

// Unreadable bytes with the error of `content`.
template <typename T>
Extent BrokenOf(const T& content) {
  return {
      .source = std::make_shared<BrokenSource>(content.member, content.data.length, *content.error),
      .offset = 0,
      .length = content.data.length};
}

// Collects attributes.
class AttributeList {
 public:
  // Adds an attribute, unless it is empty or longer than the kernel's limit.
  void Add(std::string_view name, std::string_view value) {
    constexpr size_t kMost = size_t{64} << 10U;  // Bytes; meta.json and tensors.jsonl have all.
    if (value.empty() || value.size() > kMost) return;
    attributes_.emplace_back("user.ckptfs." + std::string(name), value);
  }

  void Add(const std::vector<Annotation>& annotations) {
    for (const auto& [name, json] : annotations) Add(name, json);
  }

  template <typename Predicate>
  void AddIf(const Predicate& is_wanted, const std::vector<Annotation>& annotations) {
    for (const auto& [name, json] : annotations) {
      if (is_wanted(name)) Add(name, json);
    }
  }

  Attributes Take() && { return std::move(attributes_); }

 private:
  Attributes attributes_;
};

}  // namespace

uint32_t TensorFiles::Add(Table& table, std::string_view key) {
  if (table.error) table.data = BrokenOf(table);
  const uint32_t inode = builder_.AddFile(std::move(table.data));
  if (has_attributes_) {
    AttributeList list;
    list.Add("key", key);
    list.Add("member", table.member);
    list.Add("error", MessageOf(table.error));
    list.Add(table.annotations);
    builder_.SetAttributes(inode, std::move(list).Take());
  }
  return inode;
}

void TensorFiles::DescribeDirectory(uint32_t inode, const std::vector<Annotation>& annotations,
                                    std::string_view key) {
  if (std::ranges::none_of(annotations, IsAboutBytes, &Annotation::first)) return;
  AttributeList list;
  list.Add("key", key);
  list.AddIf(IsAboutBytes, annotations);
  builder_.SetAttributes(inode, std::move(list).Take());
}

void TensorFiles::DescribeRoot(const Checkpoint& checkpoint, std::string_view source) {
  AttributeList list;
  list.Add("source", source);
  list.AddIf(IsAboutBytes, checkpoint.root.annotations);
  list.AddIf(IsAboutBytes, checkpoint.annotations);
  builder_.SetAttributes(Tree::kRoot, std::move(list).Take());
}

uint32_t TensorFiles::Add(Tensor& tensor, std::string_view view, std::string_view key) {
  Extent& data = tensor.data;
  if (tensor.error) {
    data = BrokenOf(tensor);
    return AddNew(tensor, key);
  }
  if (data.length == 0) return AddNew(tensor, key);  // Empty tensors share nothing.

  const auto count = static_cast<uint32_t>(views_.size());
  const uint32_t number = views_.try_emplace(std::string(view), count).first->second;
  const std::array<uint64_t, 4> identity = {number, reinterpret_cast<uintptr_t>(data.source.get()),
                                            data.offset, data.length};
  const uint64_t hash = HashOf(std::as_bytes(std::span(identity)));
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
  AttributeList list;
  list.Add("dtype", is_foreign ? tensor.foreign_dtype : Name(tensor.dtype));
  list.Add("shape", shape);
  list.Add("key", key);
  list.Add("member", tensor.member);
  if (tensor.is_in_file) list.Add("offset", std::to_string(tensor.file_offset));
  list.Add("error", MessageOf(tensor.error));
  if (!tensor.is_complete) list.Add("complete", "false");
  list.Add(tensor.annotations);
  builder_.SetAttributes(inode, std::move(list).Take());
}

void DirectoryEntries::Clear() {
  text_.clear();
  names_.clear();
  second_names_.clear();
  beside_.clear();
}

std::string_view DirectoryEntries::Add(std::string_view name, uint32_t inode) {
  text_ += name;
  return End(name.size(), inode);
}

std::string_view DirectoryEntries::AddFile(std::string_view key, std::string_view suffix,
                                           uint32_t inode) {
  const std::string listed = ListedName(key);
  if (listed != key) AddSecondNames(key, listed, suffix, inode);
  text_ += listed;
  text_ += suffix;
  return End(listed.size() + suffix.size(), inode);
}

std::string_view DirectoryEntries::AddDirectory(std::string_view key, uint32_t inode) {
  const std::string listed = DirectoryName(key);
  if (listed != key) AddSecondNames(key, listed, "", inode);
  return Add(listed, inode);
}

void DirectoryEntries::AddSizes(std::string_view key, uint32_t inode) {
  const std::string listed = ListedName(key);
  if (listed.size() + kSizesSuffix.size() > Tree::kMaxFuseName) return;
  if (listed != key) AddSecondNames(key, listed, kSizesSuffix, inode);
  AddBeside(listed + std::string(kSizesSuffix), inode);
}

std::unordered_set<std::string, SecretHash> DirectoryEntries::Taken() const {
  std::unordered_set<std::string, SecretHash> taken;
  size_t begin = 0;
  for (const Piece& piece : names_) {
    taken.insert(text_.substr(begin, piece.end - begin));
    begin = piece.end;
  }
  for (const auto* others : {&second_names_, &beside_}) {
    for (const auto& [name, inode] : *others) taken.insert(name);
  }
  return taken;
}

void DirectoryEntries::SetEntries(TreeBuilder& builder, uint32_t directory,
                                  std::vector<Entry> others) {
  for (const auto& [name, inode] : beside_) Add(name, inode);
  const size_t listed = names_.size();
  for (const auto& [name, inode] : second_names_) Add(name, inode);
  std::vector<Entry> entries;
  entries.reserve(names_.size() + others.size());
  std::unordered_set<std::string_view, SecretHash> taken;
  const bool has_rivals = !second_names_.empty() || !beside_.empty();
  size_t begin = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto [end, inode] = names_[i];
    const auto name = std::string_view(text_).substr(begin, end - begin);
    begin = end;
    if (has_rivals && !taken.insert(name).second) continue;
    entries.push_back({.name = name, .inode = inode, .is_listed = i < listed});
  }
  entries.insert(entries.end(), others.begin(), others.end());
  builder.SetEntries(directory, std::move(entries));
}

std::string_view DirectoryEntries::End(size_t size, uint32_t inode) {
  names_.push_back({.end = text_.size(), .inode = inode});
  return std::string_view(text_).substr(text_.size() - size);
}

// Adds the names under which tensordict looks for the entry `listed`, before and since
// 0.13.
void DirectoryEntries::AddSecondNames(std::string_view key, std::string_view listed,
                                      std::string_view suffix, uint32_t inode) {
  const bool is_name = !suffix.empty() || (!key.empty() && key != "." && key != "..");
  if (is_name && IsFileName(key)) {
    second_names_.emplace_back(std::string(key).append(suffix), inode);
  }
  const std::string encoded = EncodeKey(key);
  if (encoded != listed && encoded != key) {
    second_names_.emplace_back(encoded + std::string(suffix), inode);
  }
}

}  // namespace ckptfs
