#include "fs/tree.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <limits>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {
namespace {

constexpr size_t kMaxInodes = size_t{1} << 31U;
constexpr size_t kBlock = 64 << 10U;  // Bytes of one block of names.

// Directories looked at for one joined name. An honest tree needs no more than the name has dots;
// a tree full of "a", "a.a", "a.a.a" could need them all.
constexpr int kMaxSteps = 1 << 12U;

const Attributes kNoAttributes;

// Returns null if there is no entry of that name.
const Entry* FindEntry(std::span<const Entry> entries, std::string_view name) {
  const auto found = std::ranges::lower_bound(entries, name, {}, &Entry::name);
  return found != entries.end() && found->name == name ? &*found : nullptr;
}

[[maybe_unused]] bool IsLegal(std::string_view name) {
  constexpr std::string_view kForbidden("/\0", 2);
  return !name.empty() && name != "." && name != ".." && name.size() <= Tree::kMaxFuseName &&
         name.find_first_of(kForbidden) == std::string_view::npos;
}

}  // namespace

const Inode* Tree::Find(uint64_t number) const {
  return number >= kRoot && number < inodes_.size() ? &inodes_[number] : nullptr;
}

std::span<const Entry> Tree::Entries(const Inode& directory) const {
  return std::span(entries_).subspan(directory.offset, directory.length);
}

uint64_t Tree::Lookup(uint64_t number, std::string_view name) const {
  const Inode* directory = Find(number);
  if (directory == nullptr || !directory->is_directory()) return 0;
  const auto entries = Entries(*directory);
  if (const Entry* entry = FindEntry(entries, name)) return entry->inode;
  int steps = kMaxSteps;
  return FindJoined(entries, name, steps);
}

// Tries each beginning of `name` that ends before a dot as the name of a directory in `entries`,
// and what is behind the dot as the name of a file in that directory or as a joined name again. A
// directory can be reached in one way only, so no directory is visited twice; `steps` bounds the
// total.
uint64_t Tree::FindJoined(std::span<const Entry> entries, std::string_view name, int& steps) const {
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (--steps < 0) return 0;
    const auto head = name.substr(0, dot);
    const auto first = std::ranges::lower_bound(entries, head, {}, &Entry::name);
    entries = entries.subspan(static_cast<size_t>(first - entries.begin()));
    if (entries.empty() || !entries.front().name.starts_with(head)) return 0;

    const Inode& inode = inodes_[entries.front().inode];
    if (entries.front().name != head || !inode.is_directory()) continue;
    const auto tail = name.substr(dot + 1);
    const auto inner = Entries(inode);
    if (const Entry* file = FindEntry(inner, tail)) {
      if (!inodes_[file->inode].is_directory()) return file->inode;
    }
    if (const uint64_t found = FindJoined(inner, tail, steps); found != 0) return found;
  }
  return 0;
}

uint64_t Tree::memory() const {
  uint64_t bytes = inodes_.capacity() * sizeof(Inode) + entries_.capacity() * sizeof(Entry) +
                   text_.size() * kBlock + attributes_.capacity() * sizeof(Attributes);
  for (const Attributes& attributes : attributes_) {
    for (const auto& [name, value] : attributes) bytes += name.capacity() + value.capacity();
  }
  return bytes;
}

const Attributes& Tree::AttributesOf(uint64_t number) const {
  return number < attributes_.size() ? attributes_[number] : kNoAttributes;
}

TreeBuilder::TreeBuilder() : texts_to_come_(std::make_shared<MemorySource>("")) {
  tree_.inodes_.resize(Tree::kRoot);
  AddDirectory(Tree::kRoot);
}

void TreeBuilder::Reserve(size_t inodes, size_t text) {
  tree_.inodes_.reserve(inodes);
  tree_.entries_.reserve(inodes);
  texts_.reserve(text);
}

uint32_t TreeBuilder::AddDirectory(uint32_t parent) {
  return Append({.links = 2, .parent = parent});  // Its entry in `parent`, and its own ".".
}

uint32_t TreeBuilder::AddFile(Extent data) {
  assert(data.source != nullptr && data.offset <= data.source->size() &&
         data.length <= data.source->size() - data.offset);
  return Append({.source = std::move(data.source), .offset = data.offset, .length = data.length});
}

uint32_t TreeBuilder::AddText(std::string_view bytes) {
  const uint64_t offset = texts_.size();
  texts_ += bytes;
  return Append({.source = texts_to_come_, .offset = offset, .length = bytes.size()});
}

uint32_t TreeBuilder::Append(Inode inode) {
  auto& inodes = tree_.inodes_;
  if (inodes.size() > kMaxInodes) {
    Fail(EFBIG, "too many files and directories (maximum {})", kMaxInodes);
  }
  inodes.push_back(std::move(inode));
  return static_cast<uint32_t>(inodes.size() - 1);
}

void TreeBuilder::SetAttributes(uint32_t inode, Attributes attributes) {
  if (tree_.attributes_.size() <= inode) tree_.attributes_.resize(inode + size_t{1});
  tree_.attributes_[inode] = std::move(attributes);
}

void TreeBuilder::SetEntries(uint32_t directory, std::vector<Entry> entries) {
  std::ranges::sort(entries, {}, &Entry::name);
  assert(std::ranges::adjacent_find(entries, {}, &Entry::name) == entries.end());
  Inode& parent = tree_.inodes_[directory];
  assert(parent.is_directory() && parent.length == 0);
  parent.offset = tree_.entries_.size();
  parent.length = entries.size();
  for (const Entry& entry : entries) {
    assert(IsLegal(entry.name));
    Inode& inode = tree_.inodes_[entry.inode];
    // A directory's ".." is a link to its parent.
    if (entry.is_listed) ++(inode.is_directory() ? parent : inode).links;
    tree_.entries_.push_back(
        {.name = Keep(entry.name), .inode = entry.inode, .is_listed = entry.is_listed});
  }
}

std::string_view TreeBuilder::Keep(std::string_view name) {
  static_assert(Tree::kMaxFuseName <= kBlock);
  if (name.size() > room_) {
    tree_.text_.push_back(std::make_unique_for_overwrite<char[]>(kBlock));
    room_ = kBlock;
  }
  char* const place = tree_.text_.back().get() + (kBlock - room_);
  std::ranges::copy(name, place);
  room_ -= name.size();
  return {place, name.size()};
}

Tree TreeBuilder::Finish() {
  const auto texts = std::make_shared<MemorySource>(std::move(texts_));
  for (size_t i = Tree::kRoot; i < tree_.inodes_.size(); ++i) {
    Inode& inode = tree_.inodes_[i];
    if (inode.is_directory()) continue;
    if (inode.source == texts_to_come_) inode.source = texts;
    if (inode.links == 0) {
      inode.links = 1;  // It is not listed, but a file without links would count as deleted.
    } else if (__builtin_add_overflow(tree_.size_, inode.length, &tree_.size_)) {
      tree_.size_ = std::numeric_limits<uint64_t>::max();
    }
  }
  return std::move(tree_);
}

}  // namespace ckptfs
