#include "parser/format/huggingface/merge.h"

#include <fmt/format.h>

#include <cerrno>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>

#include "parser/annotations.h"
#include "parser/base/json.h"
#include "parser/base/overloaded.h"

namespace ckptfs::huggingface {
namespace {

uint64_t CostOf(const std::vector<Annotation>& annotations) {
  uint64_t cost = annotations.size() * sizeof(Annotation);
  for (const Annotation& note : annotations) cost += note.second.size();
  return cost;
}

// What a group and all that is in it take, the files in the tree included. The depth of the
// recursion is that of the tree, which its format has bounded.
uint64_t CostOf(const Group& group);

uint64_t CostOf(const Table& table) {
  return CostOf(table.annotations) + table.error.size() + table.member.size();
}

uint64_t CostOf(const Member& member) {
  return 2 * sizeof member + member.key.text.size() +
         std::visit(Overloaded{[](const std::unique_ptr<Group>& group) { return CostOf(*group); },
                               [](const Tensor& tensor) {
                                 return CostOf(tensor.annotations) +
                                        tensor.shape.size() * sizeof(uint64_t) +
                                        tensor.error.size() + tensor.member.size();
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

}  // namespace

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
  if (weight == Index::kNone) annotations.emplace_back("not_in_index", "true");
  budget_.Charge(CostOf(member));
  merged_.root.members.push_back(std::move(member));
}

void Merger::AddBroken(size_t shard, const Error& error) {
  shards_.at(shard).error = error.what();
  if (errors_.empty()) errors_.push_back(error);
}

// Members for what is in the index and in no file.
void Merger::AddLost() {
  for (size_t i = 0; i < is_found_.size(); ++i) {
    if (is_found_[i]) continue;
    const Weight& weight = index_.weights[i];
    Shard& shard = shards_[weight.shard];
    ++shard.lost;
    Tensor tensor{.dtype = Dtype::kOpaque, .foreign_dtype = "unknown", .shape = {1}, .data = {}};
    tensor.data.length = 1;
    tensor.error = !shard.error.empty()
                       ? shard.error
                       : fmt::format("{} does not have it", index_.shards[weight.shard]);
    tensor.annotations.emplace_back("file", json::String(index_.shards[weight.shard]));
    Member member{{weight.name}, std::move(tensor)};
    budget_.Charge(CostOf(member));
    merged_.root.members.push_back(std::move(member));
  }
}

// What is lost comes first: of many warnings the terminal shows the first ones.
void Merger::TellLost() {
  std::vector<std::string> told;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    if (!shard.error.empty()) {
      told.push_back(fmt::format("{}: {} lost", shard.error, Tensors(shard.lost)));
    } else if (shard.lost > 0) {
      told.push_back(fmt::format("{}: does not have all that the index says: {} lost",
                                 index_.shards[i], Tensors(shard.lost)));
    }
    if (shard.superseded > 0) {
      told.push_back(fmt::format("{}: {} left out, because the index has them in other files",
                                 index_.shards[i], Tensors(shard.superseded)));
    }
  }
  merged_.warnings.insert(merged_.warnings.begin(), std::make_move_iterator(told.begin()),
                          std::make_move_iterator(told.end()));
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
    throw WithContext(fmt::format("none of its {} files can be read", shards_.size()),
                      errors_.front());
  }
  AddLost();
  if (!index_.metadata.empty()) merged_.annotations.emplace_back("index_metadata", index_.metadata);
  TellLost();
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

}  // namespace ckptfs::huggingface
