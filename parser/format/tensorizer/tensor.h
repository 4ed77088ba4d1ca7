// Tensors, from their entry in the index to the source of their bytes.
//
// They are read in two steps, because the keys of an encrypted file can be tested only after the
// headers of all tensors have been read.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/tensorizer/encryption.h"
#include "parser/format/tensorizer/index.h"
#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"
#include "parser/layer/verified.h"

namespace ckptfs::tensorizer {

// A tensor whose header has been read.
struct TensorDescription {
  Tensor tensor;                               // Its data is as stored, encrypted or not.
  std::optional<TensorEncryption> encryption;  // Unset: not encrypted.
  Hashes hashes;
  std::vector<std::byte> hashed;  // The hashed bytes that precede the data.
};

// Fills `described` from `entry` and the header of the tensor. Throws Error; type, shape and length
// are set then, too, if they are known. The result is charged to `budget`.
void Describe(const IndexEntry& entry, const FileHeader& header, const ByteSourcePtr& file,
              Budget& budget, TensorDescription& described);

// The same, but defers the header until the data are read, if possible; then fields that only the
// header contains are unknown. `index` owns the entry. Only for unencrypted files.
void DescribeByIndex(const IndexEntry& entry, const std::shared_ptr<const Index>& index,
                     const FileHeader& header, const ByteSourcePtr& file, Budget& budget,
                     TensorDescription& described);

// Data that all tensors of a file share.
struct ReadContext {
  const KeyRing& keys;                               // Open, if a tensor is encrypted.
  std::shared_ptr<BlockCache> opened;                // Chunks.
  std::shared_ptr<const Verification> verification;  // Null: hashes are not checked.
};

// Returns the tensor; messages call it `name`: "tensor 'fc.weight'". An encrypted tensor without a
// key has an error. Throws Error.
Tensor Open(TensorDescription described, const std::string& name, const ReadContext& opening);

}  // namespace ckptfs::tensorizer
