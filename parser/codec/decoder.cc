#include "parser/codec/decoder.h"

#include "parser/codec/decoder/bzip2.h"
#include "parser/codec/decoder/deflate.h"
#include "parser/codec/decoder/lzma.h"

namespace ckptfs {

std::string_view NameOf(Coding coding) {
  switch (coding) {
    case Coding::kDeflate:
      return "deflate";
    case Coding::kBzip2:
      return "bzip2";
    case Coding::kLzma:
      return "LZMA";
  }
  return "unknown";
}

std::unique_ptr<Decoder> MakeDecoder(Coding coding, std::span<const std::byte> head,
                                     uint64_t size) {
  switch (coding) {
    case Coding::kBzip2:
      return MakeBzip2Decoder();
    case Coding::kLzma:
      return MakeLzmaDecoder(head, size);
    case Coding::kDeflate:
      break;
  }
  return MakeDeflateDecoder();
}

}  // namespace ckptfs
