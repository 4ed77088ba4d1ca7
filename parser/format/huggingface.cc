// Sharded checkpoints of Hugging Face: files of any format with some of the tensors each, and a
// JSON index that maps tensors to files; see huggingface/index.h.
//
// The usual names are model-00001-of-00003.safetensors or pytorch_model-00001-of-00003.bin, but
// only the index counts. A missing or corrupt file does not affect the tensors of other files.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/format/common/annotations.h"
#include "parser/format/huggingface/index.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs {
namespace huggingface {
namespace {

// Merges the files of an index into one checkpoint. The index determines the tensors and the file
// of each. Tensors that are not in the index are shown, too, with an annotation; missing ones are
// shown as tensors that cannot be read. Belongs to one thread.
class Merger {
 public:
  // Everything is charged to `budget`; it and `index` must outlive this.
  Merger(const Index& index, Budget& budget);

  // Adds the checkpoint in the file number `shard` of the index.
  void Add(size_t shard, Checkpoint checkpoint);

  // Records that the file number `shard` cannot be read. The message of `error` names the file.
  void AddBroken(size_t shard, const Error& error);

  // Call once, after all files have been added. Throws the first error if no file could be read.
  Checkpoint Finish();

 private:
  struct Shard {
    std::optional<Error> error;  // Set: the file is unreadable.
    size_t lost = 0;             // Tensors that should be in it.
    size_t superseded = 0;       // Members that the index has in other files.
    std::string annotations;     // Members of a JSON object.
  };

  void AddMember(size_t shard, Member member);
  void AddLost();
  void WarnOfLost();

  const Index& index_;
  Budget& budget_;
  MergedAnnotations notes_;
  std::vector<Shard> shards_;
  std::vector<bool> is_found_;  // For each tensor of the index.
  std::vector<Error> errors_;   // The first one, if there is any.
  size_t readable_ = 0;         // Files that could be read.
  Checkpoint merged_;
};

uint64_t CostOf(const std::vector<Annotation>& annotations) {
  uint64_t cost = annotations.size() * sizeof(Annotation);
  for (const Annotation& note : annotations) cost += note.second.size();
  return cost;
}

// Returns the memory of a group and its members, including their files on the mount. The recursion
// is bounded by the depth of the tree, which the format limits.
uint64_t CostOf(const Group& group);

uint64_t CostOf(const Table& table) {
  return CostOf(table.annotations) + MessageOf(table.error).size() + table.member.size();
}

uint64_t CostOf(const Member& member) {
  return 2 * sizeof member + member.key.text.size() +
         std::visit(Overloaded{[](const std::unique_ptr<Group>& group) { return CostOf(*group); },
                               [](const Tensor& tensor) {
                                 return CostOf(tensor.annotations) +
                                        tensor.shape.size() * sizeof(uint64_t) +
                                        MessageOf(tensor.error).size() + tensor.member.size();
                               },
                               [](const Value& value) {
                                 return CostOf(value.annotations) + value.json.size();
                               },
                               [](const Table& table) { return CostOf(table); }},
                    member.content);
}

uint64_t CostOf(const Group& group) {
  uint64_t cost = sizeof group + CostOf(group.annotations);
  if (group.table != nullptr) cost += sizeof *group.table + CostOf(*group.table);
  for (const Member& member : group.members) cost += CostOf(member);
  return cost;
}

std::string ListOf(const std::vector<std::string_view>& texts) {
  std::string list = "[";
  for (const std::string_view text : texts) {
    json::AppendString(list, text);
    list += ',';
  }
  if (list.size() == 1) return "[]";
  list.back() = ']';
  return list;
}

std::string Tensors(size_t count) {
  return count == 1 ? "1 tensor is" : fmt::format("{} tensors are", count);
}

Merger::Merger(const Index& index, Budget& budget)
    : index_(index),
      budget_(budget),
      notes_(budget),
      shards_(index.shards.size()),
      is_found_(index.weights.size()) {}

void Merger::Add(size_t shard, Checkpoint checkpoint) {
  Shard& added = shards_.at(shard);
  added.annotations = notes_.Add(checkpoint);
  for (const std::string& warning : checkpoint.warnings) {
    budget_.Charge(sizeof(std::string) + index_.shards[shard].size() + warning.size());
    merged_.warnings.push_back(fmt::format("{}: {}", index_.shards[shard], warning));
  }
  if (readable_ == 0) merged_.root.python_type = checkpoint.root.python_type;
  if (merged_.root.python_type != checkpoint.root.python_type) merged_.root.python_type.clear();
  for (Member& member : checkpoint.root.members) AddMember(shard, std::move(member));
  ++readable_;
}

void Merger::AddMember(size_t shard, Member member) {
  const bool is_text = member.key.kind == Key::Kind::kText;
  const size_t weight = is_text ? index_.Find(member.key.text) : Index::kNone;
  if (weight != Index::kNone) {
    if (index_.weights[weight].shard != shard) {
      ++shards_[shard].superseded;
      return;
    }
    is_found_[weight] = true;
  }
  std::vector<Annotation>& annotations = AnnotationsOf(member.content);
  annotations.emplace_back("file", json::String(index_.shards[shard]));
  if (weight == Index::kNone && !index_.weights.empty()) {
    annotations.emplace_back("not_in_index", "true");
  }
  budget_.Charge(CostOf(member));
  merged_.root.members.push_back(std::move(member));
}

void Merger::AddBroken(size_t shard, const Error& error) {
  shards_.at(shard).error.emplace(EIO, error.what());
  if (errors_.empty()) errors_.push_back(error);
}

// Adds members for tensors of the index that no file contains.
void Merger::AddLost() {
  for (size_t i = 0; i < is_found_.size(); ++i) {
    if (is_found_[i]) continue;
    const Weight& weight = index_.weights[i];
    Shard& shard = shards_[weight.shard];
    ++shard.lost;
    Tensor tensor{.dtype = Dtype::kOpaque, .foreign_dtype = "unknown", .shape = {1}, .data = {}};
    tensor.data.length = 1;
    tensor.error = shard.error
                       ? *shard.error
                       : Error(EIO, fmt::format("not found in {}", index_.shards[weight.shard]));
    tensor.annotations.emplace_back("file", json::String(index_.shards[weight.shard]));
    Member member{{weight.name}, std::move(tensor)};
    budget_.Charge(CostOf(member));
    merged_.root.members.push_back(std::move(member));
  }
}

// Warnings about missing files come first, because the terminal shows only the first ones.
void Merger::WarnOfLost() {
  std::vector<std::string> warnings;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    if (shard.error) {
      warnings.push_back(fmt::format("{}: {} missing", shard.error->what(), Tensors(shard.lost)));
    } else if (shard.lost > 0) {
      warnings.push_back(
          fmt::format("{}: incomplete: {} missing", index_.shards[i], Tensors(shard.lost)));
    }
    if (shard.superseded > 0) {
      warnings.push_back(fmt::format("{}: {} ignored, because the index has them in other files",
                                     index_.shards[i], Tensors(shard.superseded)));
    }
  }
  merged_.warnings.insert(merged_.warnings.begin(), std::make_move_iterator(warnings.begin()),
                          std::make_move_iterator(warnings.end()));
  std::vector<std::string_view> names;
  for (size_t i = 0; i < is_found_.size(); ++i) {
    if (!is_found_[i]) names.push_back(index_.weights[i].name);
  }
  if (names.empty()) return;
  merged_.annotations.emplace_back("lost", ListOf(names));
  budget_.Charge(merged_.annotations.back().second.size());
}

Checkpoint Merger::Finish() {
  if (readable_ == 0) {
    throw WithContext(fmt::format("cannot read any of the {} files", shards_.size()),
                      errors_.front());
  }
  AddLost();
  if (!index_.metadata.empty()) merged_.annotations.emplace_back("index_metadata", index_.metadata);
  WarnOfLost();
  notes_.Finish(merged_);
  std::string annotations = "{";
  for (size_t i = 0; i < shards_.size(); ++i) {
    json::AppendString(annotations, index_.shards[i]);
    annotations += fmt::format(":{{{}}},", shards_[i].annotations);
  }
  annotations.back() = '}';
  merged_.annotations.emplace_back("shards", std::move(annotations));
  return std::move(merged_);
}

// "model.safetensors.index.json", and "model.safetensors.index.fp16.json" for a variant.
bool IsIndexName(std::string_view name) {
  return !name.starts_with('.') && name.ends_with(".json") &&
         name.find(".index.") != std::string_view::npos;
}

bool IsSafetensors(std::string_view name) { return name.ends_with(".safetensors"); }

bool IsOfSafetensors(std::string_view name) {
  return name.find(".safetensors.index.") != std::string_view::npos;
}

// Indexes of other frameworks, whose weights may lie in the same directory.
bool IsForeign(std::string_view name) {
  return name.find(".h5.index.") != std::string_view::npos ||
         name.find(".msgpack.index.") != std::string_view::npos;
}

// Whether the weights of an index are those of another one in another precision.
bool IsOfVariant(std::string_view name) {
  constexpr std::string_view kVariants[] = {".fp16.", ".bf16.", ".fp32."};
  return std::ranges::any_of(kVariants, [&](std::string_view variant) {
    return name.find(variant) != std::string_view::npos;
  });
}

// The name of a file of several: "model-00001-of-00003.safetensors".
struct ShardName {
  static std::optional<ShardName> Parse(std::string_view name) {
    constexpr std::string_view kSuffixes[] = {".safetensors", ".bin", ".pt", ".pth"};
    constexpr std::string_view kOf = "-of-";
    constexpr size_t kDigits = 5;
    const auto suffix = std::ranges::find_if(
        kSuffixes, [&](std::string_view ending) { return name.ends_with(ending); });
    const size_t of = name.find(kOf);
    if (suffix == std::end(kSuffixes) || of == std::string_view::npos || of <= kDigits + 1 ||
        name[of - kDigits - 1] != '-') {
      return std::nullopt;
    }
    const size_t count_at = of + kOf.size();
    const auto number = ParseNumber<uint32_t>(name.substr(of - kDigits, kDigits));
    const auto count =
        ParseNumber<uint32_t>(name.substr(count_at, name.size() - suffix->size() - count_at));
    if (!number || !count || *number < 1 || *number > *count || *count < 2 || *count > kMostFiles) {
      return std::nullopt;
    }
    ShardName shard{.stem = name.substr(0, of - kDigits - 1), .suffix = *suffix, .count = *count};
    if (shard.Of(*number) != name) return std::nullopt;
    return shard;
  }

  // Returns the name of the file `number`, from 1 on.
  std::string Of(uint32_t number) const {
    return fmt::format("{}-{:05}-of-{:05}{}", stem, number, count, suffix);
  }

  std::string_view stem;
  std::string_view suffix;
  uint32_t count = 0;
};

// Returns the first one of the files of a checkpoint that has lost its index, but is otherwise
// complete; empty if there is none, or more than one.
std::string FindWithoutIndex(std::span<const std::string> files) {
  std::vector<std::string> firsts;
  for (const std::string& name : files) {
    const std::optional<ShardName> shard = ShardName::Parse(name);
    if (!shard || name != shard->Of(1)) continue;
    uint32_t number = 2;
    while (number <= shard->count && std::ranges::binary_search(files, shard->Of(number))) ++number;
    if (number > shard->count) firsts.push_back(name);
  }
  if (std::ranges::any_of(firsts, IsSafetensors)) {
    std::erase_if(firsts, [](const std::string& name) { return !IsSafetensors(name); });
  }
  return firsts.size() == 1 ? firsts.front() : "";
}

// If there are two indexes, for safetensors and for pickles, both list the same tensors.
std::string Find(const Folder& /*folder*/, std::span<const std::string> files) {
  std::vector<std::string> indexes;
  for (const std::string& name : files) {
    if (IsIndexName(name) && !IsForeign(name)) indexes.push_back(name);
  }
  if (std::ranges::any_of(indexes, IsOfSafetensors)) {
    std::erase_if(indexes, [](const std::string& name) { return !IsOfSafetensors(name); });
  }
  if (!std::ranges::all_of(indexes, IsOfVariant)) std::erase_if(indexes, IsOfVariant);
  if (indexes.empty()) return FindWithoutIndex(files);
  if (indexes.size() > 1) {
    Fail(ENOTUNIQ, "directory with {} indexes of checkpoints, {}: name the one to mount",
         indexes.size(), Listed(indexes));
  }
  return indexes.front();
}

bool IsIndex(std::string_view file, const Probe& probe) {
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  const size_t first = head.find_first_not_of(" \t\r\n");
  return IsIndexName(file) && first != std::string_view::npos && head[first] == '{';
}

void Read(size_t number, const std::string& name, const OpenedFile& shard,
          const ReadOptions& options, Merger& merger) {
  if (!shard.file) return merger.AddBroken(number, WithContext(name, *shard.error));
  Checkpoint checkpoint;
  try {
    checkpoint = ReadCheckpoint(shard.file, name, options);
  } catch (const Error& e) {
    // An exhausted budget affects all other files, too.
    if (IsTransient(e.code()) || options.budget->is_spent()) throw;
    return merger.AddBroken(number, e);
  }
  merger.Add(number, std::move(checkpoint));
}

// Prefetches the ends of the files after number `i`, which are read one by one.
void PrefetchNext(std::span<const OpenedFile> shards, size_t i) {
  constexpr size_t kAtOnce = 16;
  if (i % kAtOnce != 0) return;
  for (const OpenedFile& shard : shards.subspan(i, std::min(kAtOnce, shards.size() - i))) {
    if (shard.file) PrefetchProbe(*shard.file);
  }
}

// Returns an index of the files that the one with `shard` as its name belongs to; it lists no
// tensors.
Index IndexOf(const ShardName& shard) {
  Index index;
  for (uint32_t number = 1; number <= shard.count; ++number) {
    index.shards.push_back(shard.Of(number));
  }
  return index;
}

Index OpenIndex(const Folder& folder, const std::string& name, Budget& budget) {
  if (const auto shard = ShardName::Parse(name)) return IndexOf(*shard);
  const ByteSourcePtr file = folder.Open(name);
  budget.Grow(file->size());
  return ReadIndex(*file, budget);
}

Checkpoint Parse(const Folder& folder, const std::string& name, const ReadOptions& options) {
  Budget& budget = *options.budget;
  const Index index = OpenIndex(folder, name, budget);
  const std::vector<OpenedFile> shards = OpenFiles(folder, index.shards);
  Merger merger(index, budget);
  for (size_t i = 0; i < shards.size(); ++i) {
    PrefetchNext(shards, i);
    Read(i, index.shards[i], shards[i], options, merger);
  }
  return merger.Finish();
}

}  // namespace
}  // namespace huggingface

extern const FolderFormat huggingface_format{.name = "huggingface",
                                             .find = huggingface::Find,
                                             .is_index = huggingface::IsIndex,
                                             .parse = huggingface::Parse};

}  // namespace ckptfs
