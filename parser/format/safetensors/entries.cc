#include "parser/format/safetensors/entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_reader.h"

namespace ckptfs::safetensors {
namespace {

constexpr size_t kMaxTensors = 2'000'000;
constexpr size_t kMaxNameSize = 65'536;  // Bytes.
constexpr std::string_view kMetadata = "__metadata__";

// Collects what a header says. Positions in it are told by how many objects and lists are open:
// 1 in the header, 2 in an entry or in the metadata, 3 in the lists of an entry.
class Collector final : public json::Visitor {
 public:
  Collector(Header& header, Budget& budget) : header_(header), budget_(budget) {}

  void Begin(bool is_object) override {
    if (depth_ == 0 && !is_object) Fail(EBADMSG, "is no JSON object");
    if (depth_ == 1) BeginEntry(is_object);
    if (depth_ >= 2) BeginInEntry(is_object);
    ++depth_;
  }

  void End(bool /*is_object*/) override {
    --depth_;
    if (depth_ == 2) member_ = Member::kOther;
    if (depth_ == 1 && !is_metadata_) EndEntry();
  }

  void Key(std::string& key) override {
    if (depth_ == 1) {
      is_metadata_ = key == kMetadata;
      if (is_metadata_ && std::exchange(has_metadata_, true)) {
        Fail(EBADMSG, "{} occurs twice", Quoted(key));
      }
      name_.swap(key);
    } else if (depth_ == 2 && is_metadata_) {
      name_.swap(key);
    } else if (depth_ == 2) {
      const auto* found = std::ranges::find(kMembers, key);
      member_ = static_cast<Member>(found - std::begin(kMembers));
      if (member_ != Member::kOther && std::exchange(has_[Index(member_)], true)) {
        FailIn("{} occurs twice", Quoted(key));
      }
    }
  }

  void Text(std::string& text) override {
    if (depth_ == 2 && is_metadata_) {
      budget_.Charge(sizeof(header_.metadata.front()) + name_.size() + text.size());
      header_.metadata.emplace_back(std::move(name_), std::move(text));
    } else if (depth_ == 2 && member_ == Member::kDtype) {
      budget_.Charge(text.size());
      entry().dtype = std::move(text);
    } else {
      Refuse("a text");
    }
  }

  void Whole(uint64_t number) override {
    if (depth_ != 3 || member_ == Member::kOther || is_metadata_) return Refuse("a number");
    if (member_ == Member::kShape) {
      AddSize(number);
    } else {
      AddOffset(number);
    }
  }

  void Other(std::string_view json) override {
    if (depth_ == 1 && is_metadata_ && json == "null") return;
    Refuse(json);
  }

 private:
  enum class Member { kDtype, kShape, kOffsets, kOther };
  static constexpr std::string_view kMembers[] = {"dtype", "shape", "data_offsets"};

  static size_t Index(Member member) { return static_cast<size_t>(member); }

  Entry& entry() { return header_.entries.back(); }

  void BeginEntry(bool is_object) {
    if (!is_object) Refuse("a list");
    if (is_metadata_) return;
    if (header_.entries.size() == kMaxTensors) Fail(EFBIG, "has more than {} tensors", kMaxTensors);
    if (name_.size() > kMaxNameSize) {
      Fail(EFBIG, "a name has {} bytes, but {} is the most", name_.size(), kMaxNameSize);
    }
    // Twice: once more for the tensor that is made of it, and its files.
    budget_.Charge(2 * (sizeof(Entry) + sizeof(ckptfs::Member) + name_.size()));
    header_.entries.push_back({.name = std::move(name_), .dtype = "", .shape = {}});
    has_.fill(false);
    offsets_ = 0;
    member_ = Member::kOther;
  }

  void BeginInEntry(bool is_object) {
    const bool is_list = depth_ == 2 && !is_object;
    const bool is_ignored = member_ == Member::kOther && !is_metadata_;
    if (is_ignored) return;
    if (!is_list || member_ == Member::kDtype || is_metadata_) {
      Refuse(is_object ? "an object" : "a list");
    }
  }

  void AddSize(uint64_t size) {
    if (entry().shape.size() == kMaxDimensions) {
      FailIn("has more than {} dimensions", kMaxDimensions);
    }
    budget_.Charge(2 * sizeof size);
    entry().shape.push_back(size);
  }

  void AddOffset(uint64_t offset) {
    if (offsets_ == 0) entry().begin = offset;
    if (offsets_ == 1) entry().end = offset;
    if (++offsets_ > 2) FailIn("has more than 2 data_offsets");
  }

  void EndEntry() {
    if (!has_[Index(Member::kDtype)]) FailIn("has no dtype");
    if (!has_[Index(Member::kShape)]) FailIn("has no shape");
    if (offsets_ != 2) FailIn("has {} data_offsets, but needs 2", offsets_);
  }

  // Throws Error if what was found cannot be ignored where it is.
  void Refuse(std::string_view found) {
    if (depth_ == 0) Fail(EBADMSG, "is no JSON object");
    if (is_metadata_) {
      if (depth_ == 1) Fail(EBADMSG, "{} is {}, but must be an object", kMetadata, found);
      Fail(EBADMSG, "{} in {} is {}, but must be a text", Quoted(name_), kMetadata, found);
    }
    if (depth_ == 1) {
      Fail(EBADMSG, "tensor {}: is {}, but must be an object", Quoted(name_), found);
    }
    if (member_ == Member::kOther) return;
    if (member_ == Member::kDtype) FailIn("its dtype is {}, but must be a text", found);
    const auto member = kMembers[Index(member_)];
    if (depth_ == 2) FailIn("its {} is {}, but must be a list", member, found);
    FailIn("its {} has {} in it, but must be of whole numbers", member, found);
  }

  template <typename... Args>
  [[noreturn]] void FailIn(fmt::format_string<Args...> format, Args&&... args) {
    throw WithContext("tensor " + Quoted(entry().name),
                      Error(EBADMSG, fmt::format(format, std::forward<Args>(args)...)));
  }

  Header& header_;
  Budget& budget_;
  size_t depth_ = 0;
  std::string name_;  // Of the member of the header, or of the metadata, that comes next.
  bool is_metadata_ = false;
  bool has_metadata_ = false;                       // Its key has come.
  Member member_ = Member::kOther;                  // Of the entry.
  std::array<bool, std::size(kMembers)> has_ = {};  // Which of them the entry has.
  size_t offsets_ = 0;                              // How many of them the entry has had.
};

// `entries` in the order of their keys, and equal ones in that of the file.
template <typename T>
std::pmr::vector<const T*> SortedBy(std::string T::*key, const std::vector<T>& entries,
                                    Budget& budget) {
  std::pmr::vector<const T*> sorted(entries.size(), &budget);
  std::ranges::transform(entries, sorted.begin(), [](const T& entry) { return &entry; });
  std::ranges::sort(sorted, [key](const T* a, const T* b) {
    const int order = (a->*key).compare(b->*key);
    return order != 0 ? order < 0 : a < b;
  });
  return sorted;
}

// The specification allows no name twice; the reference takes the last one, others the first.
void CheckNames(const std::vector<Entry>& entries, Budget& budget) {
  // As most files have them: each name comes after the one before.
  const auto is_increasing = [](const Entry& a, const Entry& b) { return a.name < b.name; };
  if (std::ranges::adjacent_find(entries, std::not_fn(is_increasing)) == entries.end()) return;
  const auto sorted = SortedBy(&Entry::name, entries, budget);
  const auto twice = std::ranges::adjacent_find(sorted, {}, &Entry::name);
  if (twice != sorted.end()) Fail(EBADMSG, "{} occurs twice", Quoted((*twice)->name));
}

// Of metadata with one key the reference keeps the last.
void KeepLast(std::vector<MetadataEntry>& metadata, Budget& budget) {
  const auto sorted = SortedBy(&MetadataEntry::first, metadata, budget);
  std::pmr::vector<bool> is_last(metadata.size(), true, &budget);
  for (size_t i = 0; i + 1 < sorted.size(); ++i) {
    if (sorted[i]->first == sorted[i + 1]->first) {
      is_last[static_cast<size_t>(sorted[i] - metadata.data())] = false;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < metadata.size(); ++i) {
    if (!is_last[i]) continue;
    if (kept != i) metadata[kept] = std::move(metadata[i]);
    ++kept;
  }
  metadata.resize(kept);
}

}  // namespace

void ReadEntries(const ByteSource& file, uint64_t offset, uint64_t length, Budget& budget,
                 Header& header) {
  Collector collector(header, budget);
  json::Read(file, offset, length, budget, collector, json::Dialect::kRepeatedKeys);
  CheckNames(header.entries, budget);
  KeepLast(header.metadata, budget);
}

}  // namespace ckptfs::safetensors
