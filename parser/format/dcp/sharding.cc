#include "parser/format/dcp/sharding.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_reader.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::dcp {
namespace {

// In the object itself one thing is open, in that of a tensor two, in a list of it three.
class Collector final : public json::Visitor {
 public:
  explicit Collector(Budget& budget) : budget_(budget) {}

  void Begin(bool is_object) override {
    if (depth_ < 2 && !is_object) FailStructure();
    if (depth_ == 2 && part_ == Part::kOffsets) {
      if (is_object) FailOffsets();
      has_offsets_ = true;
    }
    if (depth_ > 2 && part_ == Part::kOffsets) FailOffsets();
    ++depth_;
  }

  void End(bool /*is_object*/) override {
    --depth_;
    if (depth_ != 1) return;
    if (!has_offsets_) Fail(EBADMSG, "{} has no saved_offsets", Quoted(shard_.key));
    if (shard_.name.empty()) shard_.name = shard_.key;
    budget_.Charge(2 * sizeof(Shard) + shard_.key.size() + shard_.name.size() +
                   shard_.offsets.size() * sizeof(uint64_t));
    shards_.push_back(std::move(shard_));
  }

  void Key(std::string& key) override {
    if (depth_ == 1) {
      shard_ = {.key = std::move(key), .name = "", .offsets = {}};
      has_offsets_ = false;
      part_ = Part::kOther;
    } else if (depth_ == 2) {
      part_ = key == "saved_offsets" ? Part::kOffsets
              : key == "logical_fqn" ? Part::kName
                                     : Part::kOther;
    }
  }

  void Text(std::string& text) override {
    if (depth_ == 2 && part_ == Part::kName) {
      shard_.name = std::move(text);
    } else {
      RefuseNeeded();
    }
  }

  void Whole(uint64_t number) override {
    if (depth_ == 3 && part_ == Part::kOffsets) {
      if (shard_.offsets.size() == kMaxDimensions) FailOffsets();
      shard_.offsets.push_back(number);
    } else {
      RefuseNeeded();
    }
  }

  void Other(std::string_view /*json*/) override { RefuseNeeded(); }

  std::vector<Shard> Finish() {
    std::ranges::sort(shards_, {}, &Shard::key);
    return std::move(shards_);
  }

 private:
  enum class Part : uint8_t { kOther, kOffsets, kName };

  // What is met is not what it should be; where nothing is expected, it may be anything.
  void RefuseNeeded() const {
    if (depth_ < 2) FailStructure();
    if (part_ == Part::kOffsets) FailOffsets();
  }

  [[noreturn]] static void FailStructure() {
    Fail(EBADMSG, "is no object with an object for each tensor");
  }

  [[noreturn]] void FailOffsets() const {
    Fail(EBADMSG, "{} has saved_offsets that are no list of numbers from 0 to 2^64, {} at most",
         Quoted(shard_.key), kMaxDimensions);
  }

  Budget& budget_;
  int depth_ = 0;
  Part part_ = Part::kOther;  // Of the object of a tensor.
  Shard shard_;
  bool has_offsets_ = false;
  std::vector<Shard> shards_;
};

}  // namespace

std::vector<Shard> ReadSharding(const std::string& text, Budget& budget) try {
  Collector collector(budget);
  json::Read(MemorySource(text), 0, text.size(), budget, collector);
  return collector.Finish();
} catch (const Error& e) {
  throw WithContext("DCP_SHARDING_INFO", e);
}

const Shard* FindShard(const std::vector<Shard>& shards, std::string_view key) {
  const auto found = std::ranges::lower_bound(
      shards, key, {}, [](const Shard& shard) { return std::string_view(shard.key); });
  return found == shards.end() || found->key != key ? nullptr : &*found;
}

}  // namespace ckptfs::dcp
