#include "parser/view/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "parser/base/dtype.h"
#include "parser/base/hash.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/format/safetensors/header.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/joined.h"

namespace ckptfs {
namespace {

// The limits of the reference implementation.
constexpr size_t kMostHeader = 100'000'000;  // Bytes.
constexpr size_t kMostMetadata = size_t{1} << 20U;

constexpr std::string_view kMetadataKey = "__metadata__";

// Bytes. Sums of sizes that checkpoints claim must not overflow.
constexpr uint64_t kMostData = uint64_t{1} << 62U;

// The kernel reads and caches pages. If the end of the header shared one with a tensor that cannot
// be read, all tensors were lost. The format demands a multiple of 8.
constexpr size_t kPage = 4096;

// The beginning of a file of eight bytes and `header`, whose length they are.
std::string WithLength(const std::string& header) {
  std::string text;
  for (unsigned i = 0; i < sizeof(uint64_t); ++i) {
    text += static_cast<char>(uint64_t{header.size()} >> (8 * i) & 0xFFU);
  }
  return text + header;
}

// Whether readers can count the bits of a tensor. One without elements may have any other
// dimensions, and the reference refuses a whole file for one that it cannot count. In the format, a
// single pair of float4 would be a single float4, which is half of a byte.
bool IsCountable(const Tensor& tensor) {
  if (tensor.dtype == Dtype::kFloat4E2m1fnX2 && tensor.shape.empty()) return false;
  uint64_t bits = 8 * uint64_t{ItemSize(tensor.dtype)};
  return std::ranges::none_of(tensor.shape, [&bits](uint64_t size) {
    return __builtin_mul_overflow(bits, std::max<uint64_t>(size, 1), &bits);
  });
}

// The bytes of a tensor; those of one with an error cannot be read.
Extent DataOf(const Tensor& tensor) {
  if (!tensor.error) return tensor.data;
  const uint64_t size = tensor.data.length;
  return {std::make_shared<BrokenSource>(tensor.member, size, *tensor.error), 0, size};
}

// Whether a string in JSON contains an escape of half of a surrogate pair, which Python allows and
// the reference does not.
bool HasHalfOfPair(std::string_view json) {
  constexpr size_t kEscape = 6;  // Bytes of \\uXXXX.
  const auto unit = [&](size_t at) -> unsigned {
    if (json.size() < at + kEscape || json[at] != '\\' || json[at + 1] != 'u') return 0;
    return ParseNumber<uint16_t>(json.substr(at + 2, 4), 16).value_or(0);
  };
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] != '\\') continue;
    const unsigned kind = unit(i) & 0xFC00U;
    if (kind == 0xDC00U || (kind == 0xD800U && (unit(i + kEscape) & 0xFC00U) != 0xDC00U)) {
      return true;
    }
    i += kind == 0xD800U ? 2 * kEscape - 1 : 1;
  }
  return false;
}

class SafetensorsBuilder {
 public:
  explicit SafetensorsBuilder(Budget& budget) : budget_(budget) {}

  // The depth of the recursion is that of the tree, which its format has bounded.
  void Add(const Group& group, const std::string& path) {
    for (const Member& member : group.members) {
      budget_.Work(1);
      const std::string key = path.empty() ? member.key.text : path + "." + member.key.text;
      if (key.size() > kMostKey) {
        LeaveOut(key.substr(0, kMostKey));
        continue;
      }
      std::visit(
          Overloaded{[&](const std::unique_ptr<Group>& child) {
                       if (child->about.empty()) return Add(*child, key);
                       LeaveOut(key);
                     },
                     [&](const Tensor& tensor) { Add(tensor, key); },
                     [&](const Value& value) { Add(value, key); }, [](const Table& /*table*/) {}},
          member.content);
    }
  }

  SafetensorsView Finish() && {
    std::ranges::stable_sort(tensors_, [](const Placed& a, const Placed& b) {
      return std::tuple(b.item_size, a.source, a.tensor->data.offset) <
             std::tuple(a.item_size, b.source, b.tensor->data.offset);
    });
    std::string header = "{\"__metadata__\":{\"format\":\"pt\"" + metadata_ + "}";
    std::vector<Extent> parts(1);
    uint64_t begin = 0;
    for (const Placed& placed : tensors_) {
      const Tensor& tensor = *placed.tensor;
      header += ',';
      json::AppendString(header, placed.key);
      header += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                            safetensors::NameOf(tensor.dtype), ShapeOf(tensor), begin,
                            begin + tensor.data.length);
      begin += tensor.data.length;
      parts.push_back(DataOf(tensor));
      if (header.size() > kMostHeader - kPage) return {.file = nullptr, .left_out = {}};
    }
    header += '}';
    constexpr size_t kLength = sizeof(uint64_t);
    header.resize((kLength + header.size() + kPage - 1) / kPage * kPage - kLength, ' ');
    const auto head = std::make_shared<MemorySource>(WithLength(header));
    parts.front() = {head, 0, head->size()};
    return {.file = MakeJoined("safetensors view", std::move(parts)),
            .left_out = std::move(left_out_)};
  }

 private:
  static constexpr size_t kMostKey = size_t{1} << 16U;

  struct Placed {
    std::string key;
    const Tensor* tensor = nullptr;
    size_t source = 0;  // In the order in which sources are first named.
    unsigned item_size = 0;
  };

  void Add(const Tensor& tensor, const std::string& key) {
    const bool is_plain = tensor.sizes == nullptr && !safetensors::NameOf(tensor.dtype).empty() &&
                          IsCountable(tensor);
    if (!is_plain || key == kMetadataKey || !utf8::IsValid(key) ||
        tensor.data.length > kMostData - size_ || !keys_.insert(key).second) {
      return LeaveOut(key);
    }
    budget_.Charge(sizeof(Placed) + 2 * key.size() + kPerTensor + 24 * tensor.shape.size());
    size_ += tensor.data.length;
    const auto source = sources_.try_emplace(tensor.data.source.get(), sources_.size());
    tensors_.push_back({.key = key,
                        .tensor = &tensor,
                        .source = source.first->second,
                        .item_size = ItemSize(tensor.dtype)});
  }

  void Add(const Value& value, const std::string& key) {
    const bool is_string = value.json.starts_with('"') && value.python_type.empty();
    if (!is_string || key == "format" || !utf8::IsValid(key) || HasHalfOfPair(value.json)) return;
    if (!metadata_keys_.insert(key).second) return;
    if (metadata_.size() + key.size() + value.json.size() > kMostMetadata) return;
    budget_.Charge(2 * key.size() + value.json.size());
    metadata_ += ',';
    json::AppendString(metadata_, key);
    metadata_ += ':';
    metadata_ += value.json;
  }

  void LeaveOut(std::string key) {
    constexpr size_t kMostLeftOut = 1000;
    if (left_out_.size() == kMostLeftOut) return;
    budget_.Charge(sizeof(std::string) + key.size());
    left_out_.push_back(std::move(key));
  }

  static std::string ShapeOf(const Tensor& tensor) {
    std::vector<uint64_t> shape = tensor.shape;
    // The format counts elements, PyTorch pairs of them.
    if (tensor.dtype == Dtype::kFloat4E2m1fnX2 && !shape.empty()) shape.back() *= 2;
    return fmt::format("{}", fmt::join(shape, ","));
  }

  static constexpr size_t kPerTensor = 128;  // Bytes of the header, beside key and shape.

  Budget& budget_;
  std::vector<Placed> tensors_;
  std::unordered_map<const ByteSource*, size_t> sources_;
  std::unordered_set<std::string, SecretHash> keys_;
  std::unordered_set<std::string, SecretHash> metadata_keys_;
  std::string metadata_;
  std::vector<std::string> left_out_;
  uint64_t size_ = 0;
};

// NumPy's name of a dtype; empty if it has none.
std::string_view DescrOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return "|b1";
    case Dtype::kUint8:
      return "|u1";
    case Dtype::kInt8:
      return "|i1";
    case Dtype::kUint16:
      return "<u2";
    case Dtype::kInt16:
      return "<i2";
    case Dtype::kUint32:
      return "<u4";
    case Dtype::kInt32:
      return "<i4";
    case Dtype::kUint64:
      return "<u8";
    case Dtype::kInt64:
      return "<i8";
    case Dtype::kFloat16:
      return "<f2";
    case Dtype::kFloat32:
      return "<f4";
    case Dtype::kFloat64:
      return "<f8";
    case Dtype::kComplex64:
      return "<c8";
    case Dtype::kComplex128:
      return "<c16";
    default:
      return {};
  }
}

}  // namespace

SafetensorsView MakeSafetensorsView(const Checkpoint& checkpoint, Budget& budget) {
  SafetensorsBuilder builder(budget);
  builder.Add(checkpoint.root, "");
  return std::move(builder).Finish();
}

ByteSourcePtr MakeNpyView(const Tensor& tensor) {
  constexpr size_t kPadding = 64;
  constexpr size_t kBeforeText = 10;
  const std::string_view descr = DescrOf(tensor.dtype);
  if (descr.empty() || tensor.sizes != nullptr || !IsCountable(tensor)) return nullptr;
  const bool is_one = tensor.shape.size() == 1;
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 descr, fmt::join(tensor.shape, ", "), is_one ? "," : "");
  // At most 64 dimensions: the text always fits version 1.0.
  const size_t size = (kBeforeText + text.size() + 1 + kPadding - 1) / kPadding * kPadding;
  text.resize(size - kBeforeText - 1, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xFFU);
  header += static_cast<char>(text.size() >> 8U);
  const auto head = std::make_shared<MemorySource>(header + text);
  return MakeJoined("npy view", {{head, 0, head->size()}, DataOf(tensor)});
}

}  // namespace ckptfs
