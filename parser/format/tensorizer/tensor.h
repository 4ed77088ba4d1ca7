// A tensor of a file, from its entry in the index to the source of its bytes.
//
// This happens one by one, in two steps, because the keys of an encrypted file can only be tested
// when the headers of all its tensors have been read.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/tensorizer/encryption.h"
#include "parser/format/tensorizer/file_header.h"
#include "parser/format/tensorizer/index.h"
#include "parser/format/tensorizer/keys.h"
#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"
#include "parser/layer/verified.h"

namespace ckptfs::tensorizer {

// A tensor whose header has been read.
struct Described {
  Tensor tensor;                               // Its data is what is stored, encrypted or not.
  std::optional<TensorEncryption> encryption;  // None: what is stored is the tensor.
  Hashes hashes;
  std::vector<std::byte> hashed;  // What was hashed before the data.
};

// Fills in `described` from `entry` and from the header that it tells of. Type, shape and length,
// if there are such, are there also when this throws Error. What is kept is charged to `budget`.
void Describe(const Entry& entry, const FileHeader& header, const ByteSourcePtr& file,
              Budget& budget, Described& described);

// The same, but leaves the header until the data behind it are read, if it can. Then what the
// header alone says is not known. `index` has the entry. Only for files that are not encrypted.
void DescribeByIndex(const Entry& entry, const std::shared_ptr<const Index>& index,
                     const FileHeader& header, const ByteSourcePtr& file, Budget& budget,
                     Described& described);

// What the bytes of all tensors of a file are read with.
struct Opening {
  const Keys& keys;                                  // Open, if a tensor is encrypted.
  std::shared_ptr<BlockCache> opened;                // Chunks.
  std::shared_ptr<const Verification> verification;  // Null: hashes are not checked.
};

// Returns the tensor, which is called `name` in messages: "tensor 'fc.weight'". If it is encrypted
// and there is no key for it, that is its error. Throws Error.
Tensor Open(Described described, const std::string& name, const Opening& opening);

}  // namespace ckptfs::tensorizer
