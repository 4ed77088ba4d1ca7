// The header of a tensor, which precedes its data.
//
//   size in bytes        u64      including this field
//   module               u16      number of its module, in the order of traversal
//   kind, name, dtype, shape      as in the index, without a tag
//   hashes               u16 length; u8 count; of each: u8 type, u8 length, value
//   encryption           u64 length; see ReadEncryption. Only in encrypted files
//   bytes of data        i64      the last 8 bytes
//
// The hashes cover the header, with zeros in place of the hashes and without the encryption
// section, and the plain data after it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/dtype.h"
#include "parser/format/tensorizer/index.h"
#include "parser/io/byte_source.h"
#include "parser/layer/verified.h"

namespace ckptfs::tensorizer {

struct TensorHeader {
  uint16_t module = 0;
  Hashes hashes;
  std::optional<Extent> encryption;  // The section, without its length.
  std::vector<std::byte> hashed;     // The hashed bytes that precede the data.
};

// Returns whether the header of a tensor in an unencrypted file may be read together with its data.
// Checks the offsets as ReadTensorHeader does. Throws Error.
bool CanDefer(const ByteSource& file, const FileHeader& header, const IndexEntry& entry);

// Checks `bytes`, a header whose reading was deferred. Throws Error as ReadTensorHeader does.
void CheckTensorHeader(std::span<const std::byte> bytes, const IndexEntry& entry);

// Reads the header of the tensor `entry`. Checks that header and data lie within the file, one
// after the other, and that the header agrees with the entry. Counts as work of `budget`, since
// many entries may share a header. Throws Error.
TensorHeader ReadTensorHeader(const ByteSourcePtr& file, const FileHeader& header,
                              const IndexEntry& entry, Budget& budget);

// An element type.
//
// A type of NumPy is stored by its name in NumPy's array interface, byte order, kind and size:
// "<f4". Other types are void types of NumPy, followed by a NUL and PyTorch's name:
// "<V2\0torch.bfloat16". Releases before 2.0 also wrote NumPy arrays that cannot be tensors: texts,
// dates, numbers of the other byte order.
struct StoredDtype {
  Dtype dtype = Dtype::kOpaque;  // kOpaque: shown as bytes.
  std::string foreign;           // The name of a kOpaque type.
  std::optional<uint64_t> size;  // Bytes of an element, if known.
  bool is_object = false;        // Elements are stale addresses of Python objects.
};

// Accepts any text.
StoredDtype ReadDtype(std::string_view stored);

}  // namespace ckptfs::tensorizer
