#include "parser/format/safetensors/header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/byte_reader.h"
#include "parser/base/dtype.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_reader.h"
#include "parser/io/byte_source.h"

namespace ckptfs::safetensors {
namespace {

struct StoredDtype {
  std::string_view name;  // In the header: "BF16".
  unsigned bits;          // Of an element.
  Dtype dtype;            // kOpaque: PyTorch does not have it.
};

// In the order of the reference.
constexpr StoredDtype kRows[] = {
    {"BOOL", 8, Dtype::kBool},
    {"F4", 4, Dtype::kFloat4E2m1fnX2},
    {"F6_E2M3", 6, Dtype::kOpaque},
    {"F6_E3M2", 6, Dtype::kOpaque},
    {"U8", 8, Dtype::kUint8},
    {"I8", 8, Dtype::kInt8},
    {"F8_E5M2", 8, Dtype::kFloat8E5m2},
    {"F8_E4M3", 8, Dtype::kFloat8E4m3fn},
    {"F8_E8M0", 8, Dtype::kFloat8E8m0fnu},
    {"F8_E4M3FNUZ", 8, Dtype::kFloat8E4m3fnuz},
    {"F8_E5M2FNUZ", 8, Dtype::kFloat8E5m2fnuz},
    {"I16", 16, Dtype::kInt16},
    {"U16", 16, Dtype::kUint16},
    {"F16", 16, Dtype::kFloat16},
    {"BF16", 16, Dtype::kBfloat16},
    {"I32", 32, Dtype::kInt32},
    {"U32", 32, Dtype::kUint32},
    {"F32", 32, Dtype::kFloat32},
    {"C64", 64, Dtype::kComplex64},
    {"F64", 64, Dtype::kFloat64},
    {"I64", 64, Dtype::kInt64},
    {"U64", 64, Dtype::kUint64},
};

// Returns null if the dtype is unknown.
const StoredDtype* StoredDtypeNamed(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &StoredDtype::name);
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

std::string_view NameOf(Dtype dtype) {
  if (dtype == Dtype::kOpaque) return {};
  const auto* row = std::ranges::find(kRows, dtype, &StoredDtype::dtype);
  return row == std::end(kRows) ? std::string_view() : row->name;
}

namespace {

constexpr size_t kMaxTensors = 2'000'000;
constexpr size_t kMaxNameSize = 65'536;  // Bytes.
constexpr std::string_view kMetadata = "__metadata__";

// Collects entries and metadata. The depth, the number of open objects and lists, is 1 in the
// header, 2 in an entry or in the metadata, 3 in the lists of an entry. This is a visitor rather
// than a search in a json::Document because headers may have a hundred thousand entries.
class Collector final : public json::Visitor {
 public:
  Collector(SafetensorsHeader& header, Budget& budget) : header_(header), budget_(budget) {}

  void Begin(bool is_object) override {
    if (depth_ == 0 && !is_object) Fail(EBADMSG, "is not a JSON object");
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

  TensorEntry& entry() { return header_.entries.back(); }

  void BeginEntry(bool is_object) {
    if (!is_object) Refuse("a list");
    if (is_metadata_) return;
    if (header_.entries.size() == kMaxTensors) Fail(EFBIG, "has more than {} tensors", kMaxTensors);
    if (name_.size() > kMaxNameSize) {
      Fail(EFBIG, "a name has {} bytes (maximum {})", name_.size(), kMaxNameSize);
    }
    // Twice, for the tensor and its files.
    budget_.Charge(2 * (sizeof(TensorEntry) + sizeof(ckptfs::Member) + name_.size()));
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

  // Throws Error unless `found` may be ignored at this position.
  void Refuse(std::string_view found) {
    if (depth_ == 0) Fail(EBADMSG, "is not a JSON object");
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
    FailIn("its {} contains {}, but must contain whole numbers", member, found);
  }

  template <typename... Args>
  [[noreturn]] void FailIn(fmt::format_string<Args...> format, Args&&... args) {
    throw WithContext("tensor " + Quoted(entry().name),
                      Error(EBADMSG, fmt::format(format, std::forward<Args>(args)...)));
  }

  SafetensorsHeader& header_;
  Budget& budget_;
  size_t depth_ = 0;
  std::string name_;  // Of the next member of the header or the metadata.
  bool is_metadata_ = false;
  bool has_metadata_ = false;                       // Its key was read.
  Member member_ = Member::kOther;                  // Of the entry.
  std::array<bool, std::size(kMembers)> has_ = {};  // The members of the entry so far.
  size_t offsets_ = 0;                              // The number of offsets so far.
};

// Returns `entries` sorted by key, and equal keys in the order of the file.
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

// The specification forbids duplicate names; the reference uses the last one, others the first.
void CheckNames(const std::vector<TensorEntry>& entries, Budget& budget) {
  // The names in most files are sorted.
  const auto is_increasing = [](const TensorEntry& a, const TensorEntry& b) {
    return a.name < b.name;
  };
  if (std::ranges::adjacent_find(entries, std::not_fn(is_increasing)) == entries.end()) return;
  const auto sorted = SortedBy(&TensorEntry::name, entries, budget);
  const auto twice = std::ranges::adjacent_find(sorted, {}, &TensorEntry::name);
  if (twice != sorted.end()) Fail(EBADMSG, "{} occurs twice", Quoted((*twice)->name));
}

// Keeps the last one of repeated metadata, as the reference does.
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

// Parses `length` bytes of JSON at `offset` into the entries and metadata of `header`. Checks types
// and counts, but not the values of numbers. The result is charged to `budget`. Throws Error.
void ReadEntries(const ByteSource& file, uint64_t offset, uint64_t length, Budget& budget,
                 SafetensorsHeader& header) {
  Collector collector(header, budget);
  json::Read(file, offset, length, budget, collector, json::Dialect::kRepeatedKeys);
  CheckNames(header.entries, budget);
  KeepLast(header.metadata, budget);
}

constexpr uint64_t kPrefixSize = 8;
constexpr uint64_t kMaxHeaderSize = 100'000'000;  // The limit of the reference.

uint64_t ReadLength(const ByteSource& file) {
  std::array<std::byte, kPrefixSize> prefix = {};
  if (file.size() < prefix.size()) {
    Fail(EBADMSG, "the file has {} bytes, but the length of the header alone needs {}", file.size(),
         prefix.size());
  }
  file.ReadAt(0, prefix);
  const auto length = ByteReader("header", prefix).Read<uint64_t>("length");
  if (length > kMaxHeaderSize) {
    Fail(EFBIG, "has {} bytes (maximum {})", length, kMaxHeaderSize);
  }
  if (const uint64_t rest = file.size() - prefix.size(); length > rest) {
    Fail(EBADMSG, "needs {} bytes, but only {} are left: the file is truncated", length, rest);
  }
  return length;
}

// Returns the size of an entry in bytes; nothing if its dtype is unknown.
std::optional<uint64_t> SizeOf(const TensorEntry& entry) {
  const StoredDtype* row = StoredDtypeNamed(entry.dtype);
  if (row == nullptr) return std::nullopt;
  // The reference computes the size in bits, with 64-bit numbers.
  uint64_t bits = 1;
  for (const uint64_t size : entry.shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) {
      Fail(EOVERFLOW, "its shape has more than 2^64 elements");
    }
  }
  if (__builtin_mul_overflow(bits, row->bits, &bits)) {
    Fail(EOVERFLOW, "its shape needs more than 2^64 bits");
  }
  if (bits % 8 != 0) Fail(EBADMSG, "its shape needs {} bits, which are not whole bytes", bits);
  return bits / 8;
}

// `offset` is the end of the previous entry.
void CheckEntry(const TensorEntry& entry, uint64_t offset) try {
  if (entry.begin != offset) {
    Fail(EBADMSG, "begins at byte {} of the data, but what is before it ends at byte {}",
         entry.begin, offset);
  }
  if (entry.end < entry.begin) {
    Fail(EBADMSG, "ends at byte {} of the data, but begins at byte {}", entry.end, entry.begin);
  }
  const uint64_t size = entry.end - entry.begin;
  if (const auto want = SizeOf(entry); want && *want != size) {
    Fail(EBADMSG, "size mismatch (found {} bytes, dtype and shape need {})", size, *want);
  }
} catch (const Error& e) {
  throw WithContext("tensor " + Quoted(entry.name), e);
}

void CheckTiling(const SafetensorsHeader& header, uint64_t file_size, Budget& budget) {
  std::pmr::vector<const TensorEntry*> sorted(header.entries.size(), &budget);
  std::ranges::transform(header.entries, sorted.begin(), [](const TensorEntry& e) { return &e; });
  std::ranges::sort(sorted, [](const TensorEntry* a, const TensorEntry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  uint64_t offset = 0;
  for (const TensorEntry* entry : sorted) {
    CheckEntry(*entry, offset);
    offset = entry->end;
  }
  if (const uint64_t size = file_size - header.data_offset; offset != size) {
    Fail(EBADMSG, "the tensors need {} bytes of data, but the file has {}{}", offset, size,
         size < offset ? ": it is truncated" : "");
  }
}

}  // namespace

SafetensorsHeader ReadHeader(const ByteSource& file, Budget& budget) {
  SafetensorsHeader header;
  try {
    const uint64_t length = ReadLength(file);
    header.data_offset = kPrefixSize + length;
    budget.Grow(length);
    ReadEntries(file, kPrefixSize, length, budget, header);
  } catch (const Error& e) {
    throw WithContext("header", e);
  }
  CheckTiling(header, file.size(), budget);
  return header;
}

namespace {

std::string ListOf(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Turns `tensor` into a tensor of bytes.
void ShowBytes(const TensorEntry& entry, Tensor& tensor) {
  tensor.shape = {tensor.data.length};
  tensor.annotations.emplace_back("stored_dtype", json::String(entry.dtype));
  tensor.annotations.emplace_back("stored_shape", ListOf(entry.shape));
}

}  // namespace

Tensor TensorOf(const TensorEntry& entry, const SafetensorsHeader& header,
                const ByteSourcePtr& file) {
  const uint64_t offset = header.data_offset + entry.begin;
  const StoredDtype* row = StoredDtypeNamed(entry.dtype);
  Tensor tensor{.dtype = row == nullptr ? Dtype::kOpaque : row->dtype,
                .foreign_dtype = "",
                .shape = entry.shape,
                .data = {file, offset, entry.end - entry.begin},
                .member = "",
                .file_offset = offset,
                .is_in_file = true,
                .annotations = {}};
  if (tensor.dtype == Dtype::kOpaque) {
    tensor.foreign_dtype = entry.dtype;
    ShowBytes(entry, tensor);
  } else if (tensor.dtype == Dtype::kFloat4E2m1fnX2) {
    // The shape is in half bytes in the header, in bytes in PyTorch.
    const bool is_whole = !entry.shape.empty() && entry.shape.back() % 2 == 0;
    ShowBytes(entry, tensor);
    if (is_whole) {
      tensor.shape = entry.shape;
      tensor.shape.back() /= 2;
    }
  }
  return tensor;
}

}  // namespace ckptfs::safetensors
