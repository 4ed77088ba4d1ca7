#include "parser/format/tensorizer/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/tensorizer/encryption.h"
#include "parser/format/tensorizer/tensor_header.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/decrypted.h"
#include "parser/layer/deferred_offset.h"

namespace ckptfs::tensorizer {
namespace {

constexpr uint64_t kMostZeros = uint64_t{1} << 44U;  // Bytes of a tensor without data.

// Elements of a shape times their size; in bytes.
uint64_t SizeOf(const std::vector<uint64_t>& shape, uint64_t size) {
  if (std::ranges::count(shape, uint64_t{0}) != 0) return 0;
  for (const uint64_t count : shape) {
    if (__builtin_mul_overflow(size, count, &size)) {
      Fail(EOVERFLOW, "its shape needs more than 2^64 bytes");
    }
  }
  return size;
}

// Sets type, shape and length from the index. A type that PyTorch does not have becomes bytes.
void SetShape(const IndexEntry& entry, const StoredDtype& stored, Tensor& tensor) {
  tensor.dtype = stored.dtype;
  if (stored.dtype != Dtype::kOpaque) {
    tensor.shape = entry.shape;
  } else {
    tensor.foreign_dtype = stored.foreign;
    tensor.shape = {stored.size ? SizeOf(entry.shape, *stored.size) : entry.data_size};
    tensor.annotations.emplace_back("stored_dtype", json::String(entry.dtype));
    tensor.annotations.emplace_back("stored_shape",
                                    fmt::format("[{}]", fmt::join(entry.shape, ",")));
  }
  tensor.data.length = ByteSize(tensor.dtype, tensor.shape);
}

// Returns whether the tensor has no data and is shown as zeros. Throws Error if the size of its
// data is invalid.
bool IsMeta(const IndexEntry& entry, const StoredDtype& stored, const Tensor& tensor) {
  if (stored.is_object) Fail(EBADMSG, "is an array of Python objects, whose bytes are addresses");
  const uint64_t length = tensor.data.length;
  if (entry.data_size != 0) {
    if (entry.data_size == length) return false;
    Fail(EBADMSG, "size mismatch (found {} bytes, dtype and shape need {})", entry.data_size,
         length);
  }
  if (!stored.size && SizeOf(entry.shape, 1) != 0) {
    Fail(EBADMSG, "has no data, and its dtype {} has no known size", Quoted(entry.dtype));
  }
  if (length > kMostZeros) {
    Fail(EOVERFLOW, "is {} zeros without data (maximum {})", length, kMostZeros);
  }
  return length != 0;
}

std::string JsonOf(const Hashes& hashes) {
  std::vector<Annotation> members;
  if (hashes.crc32) members.emplace_back("crc32", fmt::format("\"{:08x}\"", *hashes.crc32));
  if (hashes.sha256) members.emplace_back("sha256", fmt::format("\"{}\"", Hex(*hashes.sha256)));
  return json::Object(members);
}

std::string JsonOf(const KeyDerivation& derivation) {
  return fmt::format(R"({{"method":"argon2id","passes":{},"memory":{},"salt":"{}"}})",
                     derivation.passes, derivation.memory, Hex(derivation.salt));
}

std::string JsonOf(const TensorEncryption& encryption, uint64_t data_offset) {
  std::vector<Annotation> members = {
      {"cipher", "\"xsalsa20-poly1305\""},
      {"chunk_size", std::to_string(encryption.chunks.chunk_size)},
      {"chunks", std::to_string(encryption.chunks.macs.length / Encryption::kMacSize)},
      {"data_offset", std::to_string(data_offset)}};
  if (encryption.derivation) {
    members.emplace_back("key_derivation", JsonOf(*encryption.derivation));
  }
  return json::Object(members);
}

Annotation KindOf(const IndexEntry& entry) {
  constexpr std::array<std::string_view, 3> kKinds = {"\"parameter\"", "\"buffer\"",
                                                      "\"state_dict\""};
  return {"kind", std::string(kKinds.at(static_cast<size_t>(entry.kind)))};
}

void AddAnnotations(const IndexEntry& entry, const TensorHeader& header,
                    TensorDescription& described) {
  std::vector<Annotation>& annotations = described.tensor.annotations;
  annotations.push_back(KindOf(entry));
  if (entry.kind != Kind::kStateDict) {
    annotations.emplace_back("module_index", std::to_string(header.module));
  }
  if (header.hashes.crc32 || header.hashes.sha256) {
    annotations.emplace_back("hashes", JsonOf(header.hashes));
  }
  if (described.encryption) {
    annotations.emplace_back("encryption", JsonOf(*described.encryption, entry.data_offset));
  }
}

// Annotations are copied to meta.json.
uint64_t CostOf(const TensorDescription& described) {
  uint64_t cost = described.hashed.size() + 2 * described.tensor.foreign_dtype.size();
  for (const auto& [name, json] : described.tensor.annotations)
    cost += sizeof(Annotation) + 2 * json.size();
  return cost;
}

}  // namespace

void Describe(const IndexEntry& entry, const FileHeader& header, const ByteSourcePtr& file,
              Budget& budget, TensorDescription& described) {
  Tensor& tensor = described.tensor;
  const StoredDtype stored = ReadDtype(entry.dtype);
  SetShape(entry, stored, tensor);
  TensorHeader read = ReadTensorHeader(file, header, entry, budget);
  const bool is_meta = IsMeta(entry, stored, tensor);
  if (read.encryption) {
    described.encryption = ReadEncryption(*read.encryption, entry.data_size);
    if (!described.encryption && entry.data_size != 0) {
      Fail(EBADMSG, "has data that is not encrypted, in a file that is");
    }
    if (entry.data_size == 0) described.encryption.reset();
  }
  AddAnnotations(entry, read, described);
  if (is_meta) {
    tensor.annotations.emplace_back("meta", "true");
    tensor.data.source = std::make_shared<Zeros>(tensor.data.length);
  } else {
    tensor.data = {file, entry.data_offset, entry.data_size};
    tensor.is_in_file = !described.encryption;
    if (tensor.is_in_file) tensor.file_offset = entry.data_offset;
    described.hashes = read.hashes;
    described.hashed = std::move(read.hashed);
  }
  budget.Charge(CostOf(described));
}

void DescribeByIndex(const IndexEntry& entry, const std::shared_ptr<const Index>& index,
                     const FileHeader& header, const ByteSourcePtr& file, Budget& budget,
                     TensorDescription& described) {
  constexpr uint64_t kCost = 384;  // In bytes, of a source and what it checks the header with.
  if (!CanDefer(*file, header, entry)) return Describe(entry, header, file, budget, described);
  Tensor& tensor = described.tensor;
  const StoredDtype stored = ReadDtype(entry.dtype);
  SetShape(entry, stored, tensor);
  IsMeta(entry, stored, tensor);
  tensor.annotations.push_back(KindOf(entry));
  const Extent data = {file, entry.data_offset, entry.data_size};
  const ByteRange place = {.offset = entry.header_offset,
                           .length = entry.data_offset - entry.header_offset};
  ByteSourcePtr checked = MakeDeferredOffset(
      data, place, [kept = std::shared_ptr<const IndexEntry>(index, &entry)](auto bytes) {
        CheckTensorHeader(bytes, *kept);
        return kept->data_offset;
      });
  tensor.data = {std::move(checked), data.offset, data.length};
  tensor.is_in_file = true;
  tensor.file_offset = data.offset;
  budget.Charge(kCost + CostOf(described));
}

Tensor Open(TensorDescription described, const std::string& name, const ReadContext& opening) {
  Tensor& tensor = described.tensor;
  if (described.encryption) {
    const TensorEncryption& encryption = *described.encryption;
    const auto key = opening.keys.KeyFor(encryption);
    if (!key) {
      tensor.error.emplace(ENOKEY, opening.keys.NoKeyReason(encryption));
      return std::move(tensor);
    }
    ByteSourcePtr plain = MakeDecrypted(tensor.data, encryption.chunks, key, opening.opened);
    tensor.data = {std::move(plain), 0, tensor.data.length};
  }
  const bool is_meta = tensor.data.source->is_hole();
  if (opening.verification && !is_meta) {
    tensor.data.source =
        MakeVerified(tensor.data, described.hashes, described.hashed, name, opening.verification);
  }
  return std::move(tensor);
}

}  // namespace ckptfs::tensorizer
