#include "parser/format/huggingface/index.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "parser/base/error.h"
#include "parser/codec/json_document.h"
#include "parser/codec/json_reader.h"
#include "parser/io/folder.h"

namespace ckptfs::huggingface {
namespace {

constexpr uint64_t kMostBytes = 100'000'000;
constexpr size_t kMostShards = 10'000;
constexpr size_t kLongestName = 1024;  // Bytes; no file and no object of a store has a longer one.

// Entries of an index, before their files are sorted.
class Entries {
 public:
  explicit Entries(Budget& budget) : budget_(budget) {}

  bool empty() const { return weights_.empty(); }

  void Add(std::string name, std::string file) {
    auto found = numbers_.find(file);
    if (found == numbers_.end()) {
      if (!IsPlainName(file) || file.size() > kLongestName) {
        Fail(EBADMSG, "{} is in {}, which is not the name of a file in the directory", Quoted(name),
             Quoted(file));
      }
      if (numbers_.size() == kMostShards) Fail(EFBIG, "names more than {} files", kMostShards);
      budget_.Charge(2 * (sizeof(std::string) + file.size()) + 8 * sizeof(void*));
      found = numbers_.emplace(std::move(file), static_cast<uint32_t>(numbers_.size())).first;
    }
    budget_.Charge(sizeof(Weight) + name.size());
    weights_.push_back({std::move(name), found->second});
  }

  // Gives all of it to `index`.
  void MoveTo(Index& index) {
    std::vector<uint32_t> sorted(numbers_.size());
    for (const auto& [file, number] : numbers_) {
      sorted[number] = static_cast<uint32_t>(index.shards.size());
      index.shards.push_back(file);
    }
    for (Weight& weight : weights_) weight.shard = sorted[weight.shard];
    std::ranges::sort(weights_, {}, &Weight::name);
    index.weights = std::move(weights_);
  }

 private:
  Budget& budget_;
  std::vector<Weight> weights_;
  std::map<std::string, uint32_t> numbers_;  // Of files, in the order in which they appear.
};

// Collects the index. The depth, the number of open objects and lists, is 1 in the index and 2 in
// weight_map. This is a visitor because an index may have a million entries.
class Collector final : public json::Visitor {
 public:
  explicit Collector(Budget& budget) : budget_(budget), map_(budget), members_(budget) {}

  void Begin(bool is_object) override {
    if (depth_ == 0 && !is_object) Fail(EBADMSG, "is not a JSON object");
    if (depth_ == 1 && part_ == Part::kMap && is_object) {
      has_map_ = true;
    } else if (depth_ > 0) {
      RefuseInMap(is_object ? "an object" : "a list");
    }
    if (depth_ > 0 && part_ == Part::kMetadata) metadata_.Begin(is_object);
    ++depth_;
  }

  void End(bool is_object) override {
    --depth_;
    if (depth_ > 0 && part_ == Part::kMetadata) metadata_.End(is_object);
  }

  void Key(std::string& key) override {
    if (depth_ > 1) {
      if (part_ == Part::kMetadata) metadata_.Key(key);
      if (part_ == Part::kMap) name_.swap(key);
      return;
    }
    part_ = key == "weight_map" ? Part::kMap : key == "metadata" ? Part::kMetadata : Part::kOther;
    name_.swap(key);
  }

  void Text(std::string& text) override {
    if (part_ == Part::kMetadata) {
      metadata_.Text(text);
    } else if (part_ == Part::kMap && depth_ == 2) {
      map_.Add(std::move(name_), std::move(text));
    } else if (part_ == Part::kMap || depth_ == 0) {
      RefuseInMap("a text");
    } else if (depth_ == 1) {
      members_.Add(std::move(name_), std::move(text));
    }
  }

  void Whole(uint64_t number) override {
    if (part_ == Part::kMetadata) metadata_.Whole(number);
    RefuseInMap("a number");
  }

  void Other(std::string_view json) override {
    if (part_ == Part::kMetadata) metadata_.Other(json);
    RefuseInMap(json);
  }

  Index Finish() {
    if (!has_map_ && !stranger_.empty()) {
      Fail(EBADMSG, "has no weight_map, and its member {} is not the name of a file",
           Quoted(stranger_));
    }
    Entries& entries = has_map_ ? map_ : members_;
    if (entries.empty()) Fail(EBADMSG, "names no tensors");
    Index index;
    entries.MoveTo(index);
    budget_.Charge(metadata_.json().size());
    index.metadata = metadata_.json();
    return index;
  }

 private:
  enum class Part { kMap, kMetadata, kOther };

  // Called for what is no text. Throws Error if that cannot be where it is.
  void RefuseInMap(std::string_view found) {
    if (depth_ == 0) Fail(EBADMSG, "is not a JSON object");
    if (part_ == Part::kOther && depth_ == 1 && stranger_.empty()) stranger_ = name_;
    if (part_ != Part::kMap) return;
    if (depth_ == 1) Fail(EBADMSG, "its weight_map is {}, but must be an object", found);
    Fail(EBADMSG, "in its weight_map {} is {}, but must be the name of a file", Quoted(name_),
         found);
  }

  Budget& budget_;
  size_t depth_ = 0;
  Part part_ = Part::kOther;
  std::string name_;      // Of the next member.
  bool has_map_ = false;  // There is a weight_map.
  Entries map_;           // Its entries.
  Entries members_;       // Texts beside it, which are the map if there is no weight_map.
  std::string stranger_;  // A member beside it that is not a text; may be empty.
  json::Copy metadata_;
};

}  // namespace

size_t Index::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      weights, name, {}, [](const Weight& weight) { return std::string_view(weight.name); });
  return found == weights.end() || found->name != name
             ? kNone
             : static_cast<size_t>(found - weights.begin());
}

Index ReadIndex(const ByteSource& file, Budget& budget) {
  if (file.size() > kMostBytes) {
    Fail(EFBIG, "has {} bytes (maximum {})", file.size(), kMostBytes);
  }
  Collector collector(budget);
  json::Read(file, 0, file.size(), budget, collector);
  return collector.Finish();
}

}  // namespace ckptfs::huggingface
