#include "fs/tensordict.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "fs/tensordict_files.h"
#include "fs/tensordict_index.h"
#include "fs/tensordict_meta.h"
#include "fs/tensordict_names.h"
#include "parser/base/hash.h"
#include "parser/base/json.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "parser/view/view.h"

namespace ckptfs {
namespace {

// The number of directories from dots in keys: enough for real keys, and a bound for others.
constexpr size_t kRoomAtFirst = 4096;
constexpr size_t kRoomPerMember = 8;

// Inodes and names of the tree of a usual state dict.
constexpr size_t kInodesPerMember = 3;
constexpr size_t kTextPerMember = 320;  // Bytes.

// A long key must not be multiplied by the number of tensors below it.
constexpr size_t kMaxPath = 1024;

// Returns the key of a member in the checkpoint as a whole, or the beginning of a long one.
std::string PathOf(std::string_view group, std::string_view key) {
  std::string path(group);
  if (!path.empty()) path += '.';
  path += key.substr(0, kMaxPath);
  if (path.size() > kMaxPath) path.resize(kMaxPath);
  return path;
}

// The members of a group, those of its groups included.
size_t CountMembers(const Group& group) {
  size_t count = group.members.size();
  for (const Member& member : group.members) {
    const auto* child = std::get_if<std::unique_ptr<Group>>(&member.content);
    if (child != nullptr) count += CountMembers(**child);
  }
  return count;
}

// Whether the value is a file of its own. Members of a meta.json of tensordict must stay there.
bool IsLong(const Value& value) {
  return value.json.size() > kMaxInlineJson && value.collection.text.empty();
}

class Layout {
 public:
  explicit Layout(const LayoutOptions& options)
      : options_(options),
        files_(builder_, options.has_attributes),
        room_(options.is_flat ? 0 : kRoomAtFirst) {}

  Tree Run(Checkpoint checkpoint) {
    const size_t members = CountMembers(checkpoint.root);
    builder_.Reserve(kInodesPerMember * members, kTextPerMember * members);
    index_.Reserve(members);
    if (options_.has_attributes) files_.DescribeRoot(checkpoint, options_.source);
    const size_t places = index_.AddGroup(0, checkpoint.root.members.size());
    pending_.push_back({.group = std::move(checkpoint.root),
                        .at = {.inode = Tree::kRoot, .index = TensorIndex::kRoot},
                        .places = places});
    unplaced_ = std::move(checkpoint);
    unplaced_->root.python_type = pending_.front().group.python_type;
    unplaced_->root.annotations = pending_.front().group.annotations;
    while (!pending_.empty()) {
      Pending next = std::move(pending_.front());
      pending_.pop_front();
      LayOutGroup(next);
    }
    const ByteSourcePtr index = std::move(index_).Finish();
    const uint32_t inode = builder_.AddFile({index, 0, index->size()});
    root_names_.SetEntries(builder_, Tree::kRoot, {{kIndexName, inode, false}});
    return builder_.Finish();
  }

 private:
  // A directory, in the tree and in the index.
  struct Directory {
    uint32_t inode = 0;
    uint32_t index = 0;
  };

  // A group with a directory that is still empty.
  struct Pending {
    Group group;
    Directory at;
    size_t places = 0;  // In the index.
    std::string path;   // Empty if there are no attributes to be given.
  };

  // The place of a member.
  struct Target {
    Directory directory;
    size_t place = 0;        // In the index.
    std::string_view group;  // The path of the group.
  };

  void LayOutGroup(Pending& pending) {
    if (!options_.is_flat) room_ += kRoomPerMember * pending.group.members.size();
    const Levels levels(pending.group, room_);
    std::vector<Directory> directories(levels.count());
    directories[0] = pending.at;
    for (size_t i = 0; i < levels.count(); ++i) {
      LayOutLevel(levels[i], directories[i], directories, pending);
    }
  }

  void LayOutLevel(std::span<const Item> level, Directory directory,
                   std::vector<Directory>& directories, const Pending& pending) {
    const bool is_root = directory.inode == Tree::kRoot;
    meta_.Clear();
    names_.Clear();
    unnamed_.clear();
    for (const Item& item : level) unnamed_.push_back(UnnamedMemberOf(item));
    const auto renamed = Rename(unnamed_, is_root);
    auto next = renamed.begin();
    const auto& type = pending.group.python_type;
    const bool is_list = type == "list" || type == "tuple";
    for (size_t i = 0; i < level.size(); ++i) {
      const Item& item = level[i];
      EntryName name = {.key = item.key, .original = item.key, .is_index = is_list};
      if (next != renamed.end() && next->index == i) name.key = (next++)->key;
      if (item.member == nullptr) {
        directories[item.level] = AddLevel(name, directory);
      } else {
        name.kind = item.member->key.kind;
        const auto number = static_cast<size_t>(item.member - pending.group.members.data());
        AddMember(
            name, *item.member,
            {.directory = directory, .place = pending.places + 1 + number, .group = pending.path});
      }
    }
    if (is_root) AddBeside();
    names_.Add(kMetaName, builder_.AddText(MetaOf(pending, directory.inode)));
    if (is_root) {
      root_names_ = std::move(names_);  // Until there is an index.
    } else {
      names_.SetEntries(builder_, directory.inode);
    }
  }

  // Adds the files beside the checkpoint, under names that it does not use. Names in the listing of
  // a server have any length: those that a tree cannot have are left out.
  void AddBeside() {
    if (options_.beside.empty()) return;
    std::unordered_set<std::string, SecretHash> taken = names_.Taken();
    taken.insert({std::string(kMetaName), std::string(kIndexName)});
    std::vector<const BesideEntry*> clashing;
    for (const BesideEntry& entry : options_.beside) {
      if (entry.name.size() > Tree::kMaxFuseName) continue;
      if (!taken.insert(entry.name).second) {
        clashing.push_back(&entry);
      } else {
        names_.Add(entry.name, AddBesideEntry(entry, Tree::kRoot));
      }
    }
    std::string renamed;
    for (const BesideEntry* const entry : clashing) {
      std::string name = entry->name;
      while (!taken.insert(name).second) name += '~';
      if (name.size() > Tree::kMaxFuseName) continue;
      names_.Add(name, AddBesideEntry(*entry, Tree::kRoot));
      renamed += renamed.empty() ? '[' : ',';
      AppendText(renamed, name);
    }
    if (!renamed.empty()) unplaced_->annotations.emplace_back("renamed", renamed + ']');
  }

  uint32_t AddBesideEntry(const BesideEntry& entry, uint32_t parent) {
    if (entry.file != nullptr) return builder_.AddFile({entry.file, 0, entry.file->size()});
    const uint32_t inode = builder_.AddDirectory(parent);
    std::vector<Entry> entries;
    for (const BesideEntry& each : entry.entries) {
      if (each.name.size() > Tree::kMaxFuseName) continue;
      entries.push_back({.name = each.name, .inode = AddBesideEntry(each, inode)});
    }
    builder_.SetEntries(inode, std::move(entries));
    return inode;
  }

  // The description of the checkpoint, once.
  std::string TakeSummary() {
    if (!unplaced_) return {};
    std::string text = SummaryText(*unplaced_, options_.version);
    unplaced_.reset();
    return text;
  }

  // The meta.json of `directory`, which is that of `pending` or one below it from dots in keys. The
  // summary of the checkpoint goes into the first one that has room for it: a closed collection has
  // none, and a group that is a tensor describes the tensor.
  std::string_view MetaOf(const Pending& pending, uint32_t directory) {
    const Collection& collection = pending.group.collection;
    if (collection.is_closed && directory == pending.at.inode) {
      closed_ = CollectionMeta(collection.Json());
      return closed_;
    }
    if (directory != pending.at.inode) return meta_.Finish("", TakeSummary());
    const auto& about = pending.group.about;
    return meta_.Finish(collection.Json(), about.empty() ? TakeSummary() : AboutText(about));
  }

  static UnnamedMember UnnamedMemberOf(const Item& item) {
    if (item.member == nullptr) return {item.key, true};
    return std::visit(
        Overloaded{[&](const std::unique_ptr<Group>& group) -> UnnamedMember {
                     const bool has_table = group->table != nullptr;
                     return {item.key, true, has_table ? kTableSuffix : std::string_view()};
                   },
                   [&](const Tensor&) -> UnnamedMember {
                     return {item.key, false, kTensorSuffix};
                   },
                   [&](const Value& value) -> UnnamedMember {
                     if (IsLong(value)) return {item.key, false, kLongValueSuffix};
                     return {item.key, true};
                   },
                   [&](const Table&) -> UnnamedMember {
                     return {item.key, false, kTableSuffix};
                   }},
        item.member->content);
  }

  Directory AddDirectory(const EntryName& name, Directory parent) {
    const uint32_t inode = builder_.AddDirectory(parent.inode);
    const std::string_view file_name = names_.AddDirectory(name.key, inode);
    return {.inode = inode, .index = index_.AddDirectory(parent.index, name.original, file_name)};
  }

  Directory AddLevel(const EntryName& name, Directory parent) {
    meta_.AddLevel(name);
    return AddDirectory(name, parent);
  }

  // Consumes the member's content, but not its key.
  void AddMember(const EntryName& name, Member& member, const Target& target) {
    const std::string path =
        options_.has_attributes ? PathOf(target.group, member.key.text) : std::string();
    MoveLongAnnotations(name.key, AnnotationsOf(member.content));
    std::visit(
        Overloaded{
            [&](std::unique_ptr<Group>& group) { AddGroup(name, std::move(*group), target, path); },
            [&](Tensor& tensor) { AddTensor(name, std::move(tensor), target, path); },
            [&](Value& value) { AddValue(name, std::exchange(value, {}), target, path); },
            [&](Table& table) { AddTable(name, table, kTableSuffix, target, path); }},
        member.content);
  }

  // Moves the annotations of `key` that are too long for a meta.json to files, and adds annotations
  // with their names.
  void MoveLongAnnotations(std::string_view key, std::vector<Annotation>& annotations) {
    annotation_names_.clear();
    for (auto& [name, json] : annotations) {
      if (json.size() <= kMaxInlineJson || IsAboutBytes(name)) continue;
      const std::string file = fmt::format("{}.{}{}", ListedName(key), name, kLongValueSuffix);
      if (file.size() > Tree::kMaxFuseName) continue;
      const size_t size = json.size();
      const auto source = std::make_shared<MemorySource>(std::move(json));
      names_.AddBeside(file, builder_.AddFile({source, 0, size}));
      json = json::String(file);
      name = annotation_names_.emplace_back(std::string(name).append(kAnnotationFileSuffix));
    }
  }

  void AddTensor(const EntryName& name, Tensor tensor, const Target& target,
                 std::string_view path) {
    view_.clear();
    AppendView(view_, tensor);
    meta_.AddTensor(name, tensor, view_);
    if (tensor.sizes != nullptr) {
      names_.AddSizes(name.key, builder_.AddFile(Extent(tensor.sizes->data)));
    }
    if (options_.has_npy) AddNpy(name.key, tensor);
    const uint32_t inode = files_.Add(tensor, view_, path);
    const std::string_view file_name = names_.AddFile(name.key, kTensorSuffix, inode);
    index_.Add(target.directory.index, target.place, name.original, file_name, tensor);
  }

  void AddNpy(std::string_view key, const Tensor& tensor) {
    std::string name = ListedName(key) + ".npy";
    if (name.size() > Tree::kMaxFuseName) return;
    const ByteSourcePtr view = MakeNpyView(tensor);
    if (view != nullptr)
      names_.AddBeside(std::move(name), builder_.AddFile({view, 0, view->size()}));
  }

  void AddTable(const EntryName& name, Table& table, std::string_view suffix, const Target& target,
                std::string_view path) {
    meta_.AddTable(name, table);
    AddLines(name, table, suffix, target, path);
  }

  void AddLines(const EntryName& name, Table& table, std::string_view suffix, const Target& target,
                std::string_view path) {
    const uint32_t inode = files_.Add(table, path);
    const std::string_view file_name = names_.AddFile(name.key, suffix, inode);
    index_.Add(target.directory.index, target.place, name.original, file_name, table);
  }

  void AddValue(const EntryName& name, Value value, const Target& target, std::string_view path) {
    if (IsLong(value)) {
      const size_t size = value.json.size();
      Table text{.data = {std::make_shared<MemorySource>(std::move(value.json)), 0, size},
                 .python_type = std::move(value.python_type),
                 .annotations = std::move(value.annotations)};
      text.annotations.emplace_back("data_file",
                                    json::String(ListedName(name.key).append(kLongValueSuffix)));
      AddTable(name, text, kLongValueSuffix, target, path);
      return;
    }
    meta_.AddValue(name, value);
    const uint32_t inode = AddDirectory(name, target.directory).inode;
    if (options_.has_attributes) files_.DescribeDirectory(inode, value.annotations, path);
    std::vector<Entry> entries = {{kMetaName, builder_.AddText(ValueMeta(value))}};
    if (!value.collection.inner.empty()) {
      const uint32_t inner = builder_.AddDirectory(inode);
      const uint32_t meta = builder_.AddText(CollectionMeta(value.collection.inner));
      builder_.SetEntries(inner, {{kMetaName, meta}});
      entries.push_back({kInnerName, inner});
    }
    builder_.SetEntries(inode, std::move(entries));
  }

  void AddGroup(const EntryName& name, Group group, const Target& target, std::string path) {
    meta_.AddGroup(name, group);
    const size_t places = index_.AddGroup(target.place, group.members.size());
    if (group.table != nullptr) {
      AddLines(name, *group.table, kTableSuffix,
               {.directory = target.directory, .place = places, .group = ""}, path);
    }
    const Directory directory = AddDirectory(name, target.directory);
    if (options_.has_attributes) files_.DescribeDirectory(directory.inode, group.annotations, path);
    pending_.push_back({std::move(group), directory, places, std::move(path)});
  }

  const LayoutOptions& options_;
  TreeBuilder builder_;
  TensorFiles files_;
  TensorIndex index_;
  std::deque<Pending> pending_;

  // The description for the next meta.json that has room for it, usually that of the root.
  std::optional<Checkpoint> unplaced_;
  size_t room_;

  // Of the directory at hand; here to keep their memory.
  DirectoryMeta meta_;
  std::string closed_;
  std::deque<std::string> annotation_names_;  // Of the member at hand.
  DirectoryEntries names_;
  DirectoryEntries root_names_;
  std::vector<UnnamedMember> unnamed_;
  std::string view_;
};

}  // namespace

Tree LayOut(Checkpoint checkpoint, const LayoutOptions& options) {
  return Layout(options).Run(std::move(checkpoint));
}

}  // namespace ckptfs
