// See parser/format/tensorizer for the layout.

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/target.h"

namespace ckptfs::ckpt {
namespace {

// Versions of the format, by the first one that has ...
constexpr uint64_t kPlainVersion = 1;   // ... dtypes of NumPy,
constexpr uint64_t kOpaqueVersion = 2;  // ... those of PyTorch only,
constexpr uint64_t kLongVersion = 5;    // ... dimensions of 64 bits.
constexpr uint64_t kIsTagged = 2;       // A feature: the index has versions of its entries.
constexpr uint64_t kStateDict = 2;      // The type of a tensor.
constexpr size_t kCrcSize = 4;

struct DtypeText {
  std::string text;
  bool is_opaque = false;
};

// Returns the dtype as NumPy writes it, or for a type that NumPy does not have, the name in
// PyTorch, too.
std::optional<DtypeText> DtypeTextOf(const Tensor& tensor) {
  if (tensor.sizes != nullptr) return {};
  const auto plain = [](std::string_view text) { return DtypeText{.text = std::string(text)}; };
  switch (tensor.dtype) {
    case Dtype::kBool:
      return plain("|b1");
    case Dtype::kUint8:
      return plain("|u1");
    case Dtype::kInt8:
      return plain("|i1");
    case Dtype::kUint16:
      return plain("<u2");
    case Dtype::kInt16:
      return plain("<i2");
    case Dtype::kUint32:
      return plain("<u4");
    case Dtype::kInt32:
      return plain("<i4");
    case Dtype::kUint64:
      return plain("<u8");
    case Dtype::kInt64:
      return plain("<i8");
    case Dtype::kFloat16:
      return plain("<f2");
    case Dtype::kFloat32:
      return plain("<f4");
    case Dtype::kFloat64:
      return plain("<f8");
    case Dtype::kComplex64:
      return plain("<c8");
    case Dtype::kComplex128:
      return plain("<c16");
    case Dtype::kOpaque:
    case Dtype::kQint8:
    case Dtype::kQuint8:
    case Dtype::kQint32:
    case Dtype::kQuint4x2:
    case Dtype::kQuint2x4:
      return {};
    default:
      break;
  }
  const unsigned size = ItemSize(tensor.dtype);
  std::string text = (size == 1 ? "|V" : "<V") + std::to_string(size);
  text += '\0';
  text += "torch.";
  text += Name(tensor.dtype);
  return DtypeText{.text = std::move(text), .is_opaque = true};
}

bool IsLong(const Tensor& tensor) {
  return std::ranges::any_of(tensor.shape,
                             [](uint64_t n) { return n > std::numeric_limits<uint32_t>::max(); });
}

void CheckTensor(const std::string& key, const Tensor& tensor) {
  constexpr size_t kMostKey = std::numeric_limits<uint16_t>::max();
  constexpr char kPathMark = '\x1e';  // Begins a key that is a list in JSON.
  if (key.empty() || key.size() > kMostKey || key.front() == kPathMark || !utf8::IsValid(key)) {
    Fail(ENOTSUP, "tensorizer cannot have the key {}; --map may help", Quoted(key));
  }
  const auto dtype = DtypeTextOf(tensor);
  if (!dtype) FailDtype("tensorizer", key, tensor);
  if (dtype->is_opaque && tensor.data.length == 0) {
    Fail(ENOTSUP, "tensorizer cannot read {}: it is empty, and of {}", Quoted(key),
         DtypeNameOf(tensor));
  }
}

// Adds the dtype and the shape, in the index as in the header of the tensor.
void AddType(LittleEndian& out, const Tensor& tensor) {
  const std::string dtype = DtypeTextOf(tensor)->text;
  out.Add(dtype.size(), 1);
  out.Add(dtype);
  out.Add(tensor.shape.size(), 1);
  for (const uint64_t n : tensor.shape) out.Add(n, IsLong(tensor) ? 8 : 4);
}

void AddKey(LittleEndian& out, const std::string& key) {
  out.Add(key.size(), 2);
  out.Add(key);
}

// The header of a tensor: all of it is in the CRC32, with zeros for the CRC32 itself.
std::string HeaderOf(const NamedTensor& named, uint64_t crc) {
  constexpr uint64_t kCrc32 = 0;  // The type of a hash.
  LittleEndian out;
  out.Add(0, 2);  // The number of the module.
  out.Add(kStateDict, 1);
  AddKey(out, named.key);
  AddType(out, named.tensor);
  out.Add(1 + 1 + 1 + kCrcSize, 2);  // The bytes of the hashes, of which there is one.
  out.Add(1, 1);
  out.Add(kCrc32, 1);
  out.Add(kCrcSize, 1);
  out.Add(crc, kCrcSize);
  out.Add(named.tensor.data.length, 8);
  LittleEndian header;
  header.Add(out.text().size() + sizeof(uint64_t), sizeof(uint64_t));
  header.Add(out.text());
  return header.text();
}

std::string HeaderWithCrc(const NamedTensor& named, uint32_t crc_of_data) {
  const std::string header = HeaderOf(named, 0);
  const uLong crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(header.data()), header.size());
  const auto length = static_cast<z_off_t>(named.tensor.data.length);
  return HeaderOf(named, ::crc32_combine(crc, crc_of_data, length));
}

// The header of the file, and the index, for tensors whose headers are at `offsets`.
std::string HeadOf(const std::vector<NamedTensor>& tensors, const std::vector<uint64_t>& offsets) {
  bool has_opaque = false;
  bool has_long = false;
  uint64_t bytes = 0;
  for (const auto& [key, tensor] : tensors) {
    has_opaque |= DtypeTextOf(tensor)->is_opaque;
    has_long |= IsLong(tensor);
    bytes += tensor.data.length;
  }
  LittleEndian index;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [key, tensor] = tensors[i];
    if (has_long) index.Add(IsLong(tensor) ? kLongVersion : kPlainVersion, 4);
    AddKey(index, key);
    index.Add(kStateDict, 1);
    AddType(index, tensor);
    index.Add(offsets[i], 8);
    index.Add(offsets[i] + HeaderOf(tensors[i], 0).size(), 8);
    index.Add(tensor.data.length, 8);
  }
  LittleEndian head;
  head.Add("|TZR|");
  head.Add(has_long ? kLongVersion : has_opaque ? kOpaqueVersion : kPlainVersion, 4);
  head.Add(has_long ? kIsTagged : 0, 8);
  for (int i = 0; i < 3; ++i) head.Add(0, 8);  // More features.
  head.Add(bytes, 8);
  head.Add(0, 8);
  head.Add(tensors.size(), 8);
  head.Add(index.text().size(), 8);
  head.Add(index.text());
  return head.text();
}

}  // namespace

std::vector<PlannedFile> PlanTensorizer(const Checkpoint& checkpoint, const std::string& path) {
  const std::vector<NamedTensor> tensors = NamedTensorsOf(checkpoint);
  if (tensors.empty()) Fail(ENOTSUP, "{}: tensorizer cannot read a file without tensors", path);
  for (const auto& [key, tensor] : tensors) CheckTensor(key, tensor);
  std::vector<uint64_t> offsets(tensors.size());
  PlannedFile file{.path = path, .links = {}, .segments = {}, .finish = nullptr};
  uint64_t end = HeadOf(tensors, offsets).size();
  for (size_t i = 0; i < tensors.size(); ++i) {
    offsets[i] = end;
    end += HeaderOf(tensors[i], 0).size();
    file.segments.push_back(SegmentOf(end, tensors[i].tensor));
    end += tensors[i].tensor.data.length;
  }
  file.finish = [tensors, offsets = std::move(offsets), end](const std::vector<Segment>& written) {
    std::vector<Segment> headers;
    headers.push_back(SegmentOf(0, HeadOf(tensors, offsets)));
    for (size_t i = 0; i < tensors.size(); ++i) {
      headers.push_back(SegmentOf(offsets[i], HeaderWithCrc(tensors[i], written[i].crc)));
    }
    headers.push_back(SegmentOf(end, std::string(sizeof(uint64_t), '\0')));  // No more tensors.
    return headers;
  };
  std::vector<PlannedFile> files;
  files.push_back(std::move(file));
  return files;
}

}  // namespace ckptfs::ckpt
