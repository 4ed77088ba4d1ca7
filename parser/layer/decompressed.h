// The decoded bytes of a compressed run of bytes.
//
// A compressed stream can only be decoded from its beginning, but tensors are read anywhere. The
// first pass through a stream, which goes as far as a reader needs, therefore records data that
// speed up later reads: for a deflated stream, an access point every MiB; for others, the decoded
// bytes, as long as there is room for them.

#pragma once

#include <cstdint>
#include <memory>

#include "parser/base/fd.h"
#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"
#include "parser/layer/decompressor.h"

namespace ckptfs {

// State that compressed members share.
struct Decoding {
  Decoding(std::shared_ptr<BlockCache> decoded, std::shared_ptr<ScratchSpace> space)
      : blocks(std::move(decoded)), scratch(std::move(space)) {}

  const std::shared_ptr<BlockCache> blocks;  // Decoded bytes.
  DecompressorPool decompressors;
  ScratchFile scratch;
};

// Returns the bytes that `compressed` decodes to, `compressed.size` of them. Several threads may
// read at once; one of them decodes for all what the first pass has not reached.
//
// The first pass checks the stream. Reads throw Error(EIO), now and later, from the byte where the
// stream is corrupt or truncated. If the stream is longer than `compressed.size`, or `crc` is not 0
// and the CRC-32 differs, all reads throw it: the last bytes are returned only if the whole stream
// is valid. Bytes that are decoded again are compared with the first pass. Reads also throw as
// those of the source do, and as Cancellation::CheckPreempted does, without a lasting effect: a
// cancelled read leaves the first pass to the others, at a block boundary if possible.
//
// A missing or full scratch file makes reads slower, but is no error.
ByteSourcePtr MakeDecompressed(const Compressed& compressed, uint32_t crc,
                               std::shared_ptr<Decoding> decoding);

}  // namespace ckptfs
