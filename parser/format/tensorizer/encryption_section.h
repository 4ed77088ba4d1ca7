// What the header of a tensor says of its encryption.
//
// The section is a number of records (u16), each with a length (u64) and a type (u16):
//
//   1  how the key comes from a passphrase: u16 method (1: Argon2id of libsodium), u64 passes, u64
//      bytes of memory, i32 algorithm, u16 length of the salt, salt
//   2  data in chunks: u64 bytes of a chunk, nonce, u64 number of tags, tags
//   3  data in one piece: nonce, tag
//
// No release writes the last. A section without records is that of a tensor without data.

#pragma once

#include <cstdint>
#include <optional>

#include "parser/format/tensorizer/encryption.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensorizer {

// Reads the section that lies at `extent`, of a tensor with `data_size` bytes of data. Nothing if
// the data is not encrypted. There is one tag for each chunk, and no chunk is too large to be
// opened. Of the tags, only the place is looked at. Throws Error(EBADMSG).
std::optional<TensorEncryption> ReadEncryption(const Extent& extent, uint64_t data_size);

}  // namespace ckptfs::tensorizer
