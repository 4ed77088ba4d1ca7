#include "fs/tensordict.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "fs/tensordict_files.h"
#include "fs/tensordict_levels.h"
#include "fs/tensordict_meta.h"
#include "fs/tensordict_names.h"
#include "parser/json.h"
#include "parser/secret_hash.h"

namespace ckptfs {
namespace {

// Directories that the dots of keys may make: what honest keys need, and a bound for others.
constexpr size_t kRoomAtFirst = 4096;
constexpr size_t kRoomPerMember = 8;

// What the tree of a usual state dict needs.
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

// The names in one directory. Keys must have been made fit by Rename.
class Names {
 public:
  void Clear() {
    text_.clear();
    names_.clear();
    second_names_.clear();
    sizes_.clear();
  }

  void Add(std::string_view name, uint32_t inode) {
    text_ += name;
    names_.push_back({.end = text_.size(), .inode = inode});
  }

  // `key` must live until SetEntries.
  void AddFile(std::string_view key, std::string_view suffix, uint32_t inode) {
    const std::string encoded = EncodeKey(key);
    text_ += encoded;
    Add(suffix, inode);
    if (encoded != key && IsFileName(key)) second_names_.push_back({key, suffix, inode});
  }

  // The shapes of what is nested in the tensor `key`. Where a tensor "<key>.shape" or a directory
  // has that name, tensordict could not have it either.
  void AddSizes(std::string_view key, uint32_t inode) {
    std::string name = EncodeKey(key);
    name.append(kSizesSuffix);
    if (name.size() <= Tree::kMaxName) sizes_.emplace_back(std::move(name), inode);
  }

  // Makes these the entries of `directory`. A second name must not take a first one's place: "a/b"
  // is at home in a%2Fb.memmap, "a%2Fb" is not.
  void SetEntries(TreeBuilder& builder, uint32_t directory) {
    for (const auto& [name, inode] : sizes_) Add(name, inode);
    for (const auto& [key, suffix, inode] : second_names_) {
      text_ += key;
      Add(suffix, inode);
    }
    std::vector<std::pair<std::string_view, uint32_t>> entries;
    entries.reserve(names_.size());
    std::unordered_set<std::string_view, SecretHash> taken;
    const bool has_rivals = !second_names_.empty() || !sizes_.empty();
    size_t begin = 0;
    for (const auto& [end, inode] : names_) {
      const auto name = std::string_view(text_).substr(begin, end - begin);
      begin = end;
      if (!has_rivals || taken.insert(name).second) entries.emplace_back(name, inode);
    }
    builder.SetEntries(directory, std::move(entries));
  }

 private:
  struct Piece {
    size_t end = 0;  // In text_; it begins where the one before ends.
    uint32_t inode = 0;
  };

  struct SecondName {
    std::string_view key;
    std::string_view suffix;
    uint32_t inode = 0;
  };

  std::string text_;
  std::vector<Piece> names_;
  std::vector<SecondName> second_names_;
  std::vector<std::pair<std::string, uint32_t>> sizes_;
};

class Layout {
 public:
  explicit Layout(const LayoutOptions& options)
      : options_(options),
        files_(builder_, options.has_attributes),
        room_(options.is_flat ? 0 : kRoomAtFirst) {}

  Tree Run(Checkpoint checkpoint) {
    const size_t members = CountMembers(checkpoint.root);
    builder_.Reserve(kInodesPerMember * members, kTextPerMember * members);
    summary_ = SummaryText(checkpoint, options_.version, options_.source);
    pending_.push_back({.group = std::move(checkpoint.root), .inode = Tree::kRoot});
    while (!pending_.empty()) {
      Pending next = std::move(pending_.front());
      pending_.pop_front();
      LayOutGroup(next);
    }
    return builder_.Finish();
  }

 private:
  // A group that has a directory but nothing in it yet.
  struct Pending {
    Group group;
    uint32_t inode = 0;
    std::string path;  // Empty if there are no attributes to be given.
  };

  void LayOutGroup(Pending& pending) {
    if (!options_.is_flat) room_ += kRoomPerMember * pending.group.members.size();
    if (!pending.group.about.empty()) summary_ = json::Object(pending.group.about);
    const Levels levels(pending.group, room_);
    std::vector<uint32_t> inodes(levels.count());
    inodes[0] = pending.inode;
    for (size_t i = 0; i < levels.count(); ++i) {
      LayOutLevel(levels[i], inodes[i], inodes, pending);
    }
  }

  void LayOutLevel(std::span<const Item> level, uint32_t directory, std::vector<uint32_t>& inodes,
                   const Pending& pending) {
    meta_.Clear();
    names_.Clear();
    wanted_.clear();
    for (const Item& item : level) wanted_.push_back(WantedBy(item));
    const auto renamed = Rename(wanted_);
    auto next = renamed.begin();
    const auto& type = pending.group.python_type;
    const bool is_list = type == "list" || type == "tuple";
    for (size_t i = 0; i < level.size(); ++i) {
      const Item& item = level[i];
      EntryName name = {.key = item.key, .original = item.key, .is_index = is_list};
      if (next != renamed.end() && next->index == i) name.key = (next++)->key;
      if (item.member == nullptr) {
        inodes[item.level] = AddLevel(name, directory);
      } else {
        name.kind = item.member->key.kind;
        AddMember(name, *item.member, directory, pending.path);
      }
    }
    names_.Add(kMetaName, builder_.AddText(MetaOf(pending, directory)));
    names_.SetEntries(builder_, directory);
  }

  // The meta.json of `directory`, which is that of `pending` or one that dots make in it. What is
  // to be told about the checkpoint as a whole waits for one that may tell it.
  std::string_view MetaOf(const Pending& pending, uint32_t directory) {
    const Collection& collection = pending.group.collection;
    if (collection.is_closed && directory == pending.inode) {
      closed_ = CollectionMeta(collection.text);
      return closed_;
    }
    return meta_.Finish(directory == pending.inode ? collection.text : "",
                        std::exchange(summary_, {}));
  }

  static Wanted WantedBy(const Item& item) {
    if (item.member == nullptr) return {item.key, true};
    const Content& content = item.member->content;
    if (std::holds_alternative<Tensor>(content)) return {item.key, false, kTensorSuffix};
    if (std::holds_alternative<Table>(content)) return {item.key, false, kTableSuffix};
    const auto* group = std::get_if<std::unique_ptr<Group>>(&content);
    const bool has_table = group != nullptr && (*group)->table != nullptr;
    return {item.key, true, has_table ? kTableSuffix : std::string_view()};
  }

  uint32_t AddDirectory(const EntryName& name, uint32_t parent) {
    const uint32_t inode = builder_.AddDirectory(parent);
    names_.Add(DirectoryName(name.key), inode);
    return inode;
  }

  uint32_t AddLevel(const EntryName& name, uint32_t parent) {
    meta_.AddLevel(name);
    return AddDirectory(name, parent);
  }

  // The member's content is used up, its key is not.
  void AddMember(const EntryName& name, Member& member, uint32_t parent, std::string_view group) {
    const std::string path =
        options_.has_attributes ? PathOf(group, member.key.text) : std::string();
    if (auto* tensor = std::get_if<Tensor>(&member.content)) {
      AddTensor(name, std::move(*tensor), path);
    } else if (auto* value = std::get_if<Value>(&member.content)) {
      AddValue(name, std::exchange(*value, {}), parent);
    } else if (auto* table = std::get_if<Table>(&member.content)) {
      meta_.AddTable(name, *table);
      AddLines(name, *table);
    } else {
      AddGroup(name, std::move(*std::get<std::unique_ptr<Group>>(member.content)), parent, path);
    }
  }

  void AddTensor(const EntryName& name, Tensor tensor, std::string_view path) {
    view_.clear();
    AppendView(view_, tensor);
    meta_.AddTensor(name, tensor, view_);
    if (tensor.sizes != nullptr) {
      names_.AddSizes(name.key, builder_.AddFile(Extent(tensor.sizes->data)));
    }
    names_.AddFile(name.key, kTensorSuffix, files_.Add(tensor, view_, path));
  }

  void AddLines(const EntryName& name, Table& table) {
    names_.AddFile(name.key, kTableSuffix, files_.Add(table));
  }

  void AddValue(const EntryName& name, const Value& value, uint32_t parent) {
    meta_.AddValue(name, value);
    const uint32_t inode = AddDirectory(name, parent);
    std::vector<std::pair<std::string_view, uint32_t>> entries = {
        {kMetaName, builder_.AddText(ValueMeta(value))}};
    if (!value.collection.inner.empty()) {
      const uint32_t inner = builder_.AddDirectory(inode);
      const uint32_t meta = builder_.AddText(CollectionMeta(value.collection.inner));
      builder_.SetEntries(inner, {{kMetaName, meta}});
      entries.emplace_back(kInnerName, inner);
    }
    builder_.SetEntries(inode, std::move(entries));
  }

  void AddGroup(const EntryName& name, Group group, uint32_t parent, std::string path) {
    meta_.AddGroup(name, group);
    if (group.table != nullptr) AddLines(name, *group.table);
    const uint32_t inode = AddDirectory(name, parent);
    pending_.push_back({std::move(group), inode, std::move(path)});
  }

  const LayoutOptions& options_;
  TreeBuilder builder_;
  TensorFiles files_;
  std::deque<Pending> pending_;
  std::string summary_;  // For the next meta.json: of the root, which comes first, or of a tensor.
  size_t room_;

  // Of the directory at hand; here to keep their memory.
  DirectoryMeta meta_;
  std::string closed_;
  Names names_;
  std::vector<Wanted> wanted_;
  std::string view_;
};

}  // namespace

Tree LayOut(Checkpoint checkpoint, const LayoutOptions& options) {
  return Layout(options).Run(std::move(checkpoint));
}

}  // namespace ckptfs
