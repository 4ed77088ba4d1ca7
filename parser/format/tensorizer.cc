// The format of tensorizer (https://github.com/coreweave/tensorizer): an index, followed by the
// tensors, each with a header of its own; see tensorizer/index.h.
//
// Only encrypted data are authenticated. Most fields are stored twice, in the index and in the
// header of the tensor; tensorizer uses one of them. Here both must agree, or that tensor cannot be
// read. An invalid index (names, number of tensors) makes the whole file unreadable. ckptfs also
// reads tensors without elements or data of types that NumPy does not have, which tensorizer cannot
// read.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/format.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/tensorizer/encryption.h"
#include "parser/format/tensorizer/index.h"
#include "parser/format/tensorizer/tensor.h"
#include "parser/format/tensorizer/tree.h"
#include "parser/io/prefetch.h"

namespace ckptfs {
namespace tensorizer {
namespace {

std::string Subject(const IndexEntry& entry) { return "tensor " + Quoted(ShownName(entry.name)); }

bool Matches(const Probe& probe) {
  return probe.head.size() >= kMagic.size() &&
         std::ranges::equal(probe.head.first(kMagic.size()), std::as_bytes(std::span(kMagic)));
}

// Adds all headers that lie in the file, one after another, to `prefetcher`.
void PrefetchHeaders(const ByteSource& file, const Index& index, Prefetcher& prefetcher) {
  uint64_t end = 0;
  for (const IndexEntry& entry : index.entries) {
    const bool is_sound = entry.header_offset >= end && entry.data_offset > entry.header_offset &&
                          entry.data_offset <= file.size();
    if (!is_sound) continue;
    end = entry.data_offset;
    prefetcher.Add({.offset = entry.header_offset, .length = end - entry.header_offset});
  }
}

// Bytes for decrypted chunks; larger if two chunks need more.
constexpr uint64_t kMemoryForChunks = uint64_t{16} << 20U;

// Reads one file.
class Reader {
 public:
  Reader(ByteSourcePtr file, const ReadOptions& options)
      : file_(std::move(file)), options_(options), budget_(*options.budget) {}

  Checkpoint Read() {
    header_ = ReadFileHeader(*file_);
    index_ = std::make_shared<const Index>(ReadIndex(*file_, header_, budget_));
    if (header_.is_unreleased()) RefuseDevelopmentLayout(*file_, *index_);
    TreeBuilder tree(checkpoint_.root, budget_);
    for (const IndexEntry& entry : index_->entries)
      places_.push_back(tree.Add(ReadName(entry.name)));
    DescribeAll();
    CheckRanges();
    OpenAll();
    tree.Finish();
    AddAnnotations();
    return std::move(checkpoint_);
  }

 private:
  // A tensor with a valid header.
  struct Good {
    const IndexEntry* entry;
    TreePosition place;
    TensorDescription described;
  };

  // Returns whether headers may be deferred until the data are read. They contain keys and hashes.
  bool CanDeferHeaders() const {
    return file_->is_remote() && !header_.is_encrypted && options_.verification == nullptr;
  }

  void DescribeAll() {
    const bool is_deferred = CanDeferHeaders();
    Prefetcher headers(*file_);
    if (!is_deferred) PrefetchHeaders(*file_, *index_, headers);
    for (size_t i = 0; i < index_->entries.size(); ++i) {
      const IndexEntry& entry = index_->entries[i];
      budget_.Charge(2 * sizeof(Good));
      TensorDescription described;
      try {
        if (is_deferred) {
          DescribeByIndex(entry, index_, header_, file_, budget_, described);
        } else {
          headers.Reach(entry.header_offset);
          Describe(entry, header_, file_, budget_, described);
        }
      } catch (const Error& e) {
        if (IsFatal(e)) throw;
        if (!first_damage_) first_damage_ = WithContext(Subject(entry), e);
        WarnOfUnreadable(ShownName(entry.name), e, budget_, checkpoint_);
        places_[i].member().content = MakePlaceholder(std::move(described.tensor), e);
        continue;
      }
      has_bytes_ = has_bytes_ || described.tensor.data.length != 0;
      good_.push_back({&entry, places_[i], std::move(described)});
    }
    if (first_damage_ && !has_bytes_) throw Error(*first_damage_);
  }

  // Throws Error if two tensors overlap.
  void CheckRanges() {
    std::pmr::vector<const IndexEntry*> sorted(&budget_);
    for (const Good& good : good_) sorted.push_back(good.entry);
    std::ranges::sort(sorted, {}, &IndexEntry::header_offset);
    for (size_t i = 1; i < sorted.size(); ++i) {
      const IndexEntry& before = *sorted[i - 1];
      if (const uint64_t end = before.data_offset + before.data_size;
          sorted[i]->header_offset < end) {
        Fail(EBADMSG, "{}: from byte {} on it overlaps {}, which ends at byte {}",
             Subject(*sorted[i]), sorted[i]->header_offset, Subject(before), end);
      }
    }
  }

  void OpenAll() {
    KeyRing keys(options_.ask_secret, budget_);
    std::vector<EncryptedTensor> encrypted;
    uint64_t largest = 0;  // Chunk, in bytes.
    for (const Good& good : good_) {
      if (!good.described.encryption) continue;
      budget_.Charge(2 * sizeof(EncryptedTensor));
      encrypted.push_back({good.described.tensor.data, *good.described.encryption});
      largest = std::max(largest, good.described.encryption->chunks.chunk_size);
    }
    keys.Open(encrypted);
    const ReadContext opening{
        .keys = keys,
        .opened = std::make_shared<BlockCache>(std::max(kMemoryForChunks, 2 * largest)),
        .verification = options_.verification};
    std::map<std::string, std::vector<const IndexEntry*>> without_key;  // By the reason.
    for (Good& good : good_) {
      Tensor tensor = Open(std::move(good.described), Subject(*good.entry), opening);
      if (const std::string_view message = MessageOf(tensor.error); !message.empty()) {
        budget_.Charge(2 * sizeof(void*) + 4 * message.size());
        without_key[std::string(message)].push_back(good.entry);
      }
      good.place.member().content = std::move(tensor);
    }
    for (const auto& [reason, entries] : without_key) WarnOfMissingKey(reason, entries);
  }

  // One warning for all tensors: usually no tensor of the file has a key.
  void WarnOfMissingKey(const std::string& reason, const std::vector<const IndexEntry*>& entries) {
    const bool is_one = entries.size() == 1;
    checkpoint_.warnings.push_back(
        fmt::format("{}{}: {}: reading {} will fail", Subject(*entries[0]),
                    is_one ? "" : fmt::format(" and {} more", entries.size() - 1), reason,
                    is_one ? "it" : "them"));
  }

  void AddAnnotations() {
    std::vector<Annotation>& annotations = checkpoint_.annotations;
    annotations.emplace_back("data_version", std::to_string(header_.version));
    annotations.emplace_back("feature_flags", std::to_string(header_.flags));
    annotations.emplace_back("tensor_count", std::to_string(header_.count));
    annotations.emplace_back("total_data_bytes", std::to_string(header_.data_bytes));
    annotations.emplace_back("encrypted", header_.is_encrypted ? "true" : "false");
    annotations.emplace_back("index_bytes", std::to_string(header_.index_size));
  }

  const ByteSourcePtr file_;
  const ReadOptions& options_;
  Budget& budget_;
  FileHeader header_;
  std::shared_ptr<const Index> index_;
  std::vector<TreePosition> places_;  // Of the entries of the index.
  std::vector<Good> good_;
  bool has_bytes_ = false;  // One of these.
  std::optional<Error> first_damage_;
  Checkpoint checkpoint_;
};

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  return Reader(source.file, options).Read();
}

}  // namespace
}  // namespace tensorizer

extern const Format tensorizer_format{.name = "tensorizer",
                                      .matches = tensorizer::Matches,
                                      .parse = tensorizer::Parse,
                                      .is_certain = tensorizer::Matches};

}  // namespace ckptfs
