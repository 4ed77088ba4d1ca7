// A compressed run of bytes, as what it decodes to.
//
// A compressed stream can only be decoded from its beginning, but tensors are read anywhere. So the
// first pass through a stream, which goes from its beginning as far as somebody reads, leaves
// behind what makes the next reads short: of a deflated stream, every MiB, a place where decoding
// can be taken up again; of others, what they decode to, as long as there is room for it.

#pragma once

#include <cstdint>
#include <memory>

#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"
#include "parser/layer/decompressor.h"
#include "parser/layer/decompressor_pool.h"
#include "parser/layer/scratch_file.h"

namespace ckptfs {

// What compressed members share.
struct Decoding {
  Decoding(std::shared_ptr<BlockCache> decoded, std::shared_ptr<ScratchSpace> space)
      : blocks(std::move(decoded)), scratch(std::move(space)) {}

  const std::shared_ptr<BlockCache> blocks;  // Decoded bytes.
  DecompressorPool decompressors;
  ScratchFile scratch;
};

// Returns the bytes that `compressed` decodes to, `compressed.size` of them. Several threads may read at
// once; what is behind the end of the first pass, one of them decodes for all.
//
// The first pass checks the stream. Reads throw Error(EIO), and will for ever, from where it is
// damaged or cut off; and, if it has another length than `compressed.size`, goes on behind its end, or,
// where `crc` is not 0, decodes to bytes with another CRC-32, everywhere: so the last bytes are
// given only if all are right. What is decoded again is compared with the first pass. Reads also
// throw as those of the source do, and as Cancellation::CheckPreempted does, which is not remembered: a
// read that stops leaves the first pass to the others, at a whole block if it can.
//
// A scratch file that cannot be had or may not grow makes reads take longer, but is no error.
ByteSourcePtr MakeDecompressed(const Compressed& compressed, uint32_t crc,
                               std::shared_ptr<Decoding> decoding);

}  // namespace ckptfs
