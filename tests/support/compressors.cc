#include "tests/support/compressors.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>

#include <cassert>
#include <memory>
#include <utility>

#include "parser/io/simple_sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

// Appends codes, each with its most significant bit first, to bytes that are filled from the least
// significant one.
class Bits {
 public:
  void Code(unsigned code, int length) {
    for (int i = length - 1; i >= 0; --i) Bit(code >> i & 1U);
  }
  void Bit(unsigned bit) {
    if (count_ % 8 == 0) text_ += '\0';
    text_.back() = static_cast<char>(static_cast<unsigned char>(text_.back()) | bit << count_ % 8);
    ++count_;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  size_t count_ = 0;
};

}  // namespace

std::string Deflate(std::string_view data, const DeflateOptions& options) {
  z_stream stream = {};
  deflateInit2(&stream, options.level, Z_DEFLATED, -15, 8,
               options.is_fixed ? Z_FIXED : Z_DEFAULT_STRATEGY);
  std::string deflated;
  const size_t piece = options.flush_after != 0 ? options.flush_after : data.size() + 1;
  std::string buffer(1 << 16, '\0');
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    const std::string_view next = data.substr(0, piece);
    data.remove_prefix(next.size());
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(next.data()));
    stream.avail_in = static_cast<uInt>(next.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = static_cast<uInt>(buffer.size());
      result = deflate(&stream, data.empty() ? Z_FINISH : Z_SYNC_FLUSH);
      deflated.append(buffer, 0, buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
  deflateEnd(&stream);
  return deflated;
}

std::string DeflateInOneBlock(std::string_view data) {
  constexpr unsigned kEndOfBlock = 256;
  Bits bits;
  bits.Bit(1);  // The last block, ...
  bits.Bit(1);  // ... with fixed codes, type 01.
  bits.Bit(0);
  for (const char c : data) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 144) {
      bits.Code(0x30U + byte, 8);
    } else {
      bits.Code(0x190U + byte - 144U, 9);
    }
  }
  bits.Code(kEndOfBlock - 256U, 7);
  return bits.text();
}

std::string Bzip2(std::string_view data) {
  auto size = static_cast<unsigned>(data.size() + data.size() / 100 + 600);
  std::string compressed(size, '\0');
  BZ2_bzBuffToBuffCompress(compressed.data(), &size, const_cast<char*>(data.data()),
                           static_cast<unsigned>(data.size()), 1, 0, 0);
  compressed.resize(size);
  return compressed;
}

std::string Lzma(std::string_view data, bool has_marker) {
  lzma_options_lzma options = {};
  lzma_lzma_preset(&options, 0);
  options.ext_flags = has_marker ? LZMA_LZMA1EXT_ALLOW_EOPM : 0;
  lzma_set_ext_size(options, data.size());
  const lzma_filter filters[] = {{.id = LZMA_FILTER_LZMA1EXT, .options = &options},
                                 {.id = LZMA_VLI_UNKNOWN, .options = nullptr}};
  std::string compressed = std::string("\x09\x04\x05\x00", 4) + std::string(5, '\0');
  lzma_properties_encode(filters, reinterpret_cast<uint8_t*>(compressed.data()) + 4);
  const size_t head = compressed.size();
  compressed.resize(head + data.size() + data.size() / 10 + 1000);
  lzma_stream stream = LZMA_STREAM_INIT;
  [[maybe_unused]] lzma_ret result = lzma_raw_encoder(&stream, filters);
  assert(result == LZMA_OK);
  stream.next_in = reinterpret_cast<const uint8_t*>(data.data());
  stream.avail_in = data.size();
  stream.next_out = reinterpret_cast<uint8_t*>(compressed.data()) + head;
  stream.avail_out = compressed.size() - head;
  result = lzma_code(&stream, LZMA_FINISH);
  assert(result == LZMA_STREAM_END);
  compressed.resize(head + stream.total_out);
  lzma_end(&stream);
  return compressed;
}

std::string Compress(Coding coding, std::string_view data) {
  switch (coding) {
    case Coding::kBzip2:
      return Bzip2(data);
    case Coding::kLzma:
      return Lzma(data);
    case Coding::kDeflate:
      break;
  }
  return Deflate(data, {.level = 1});
}

Compressed CompressedOf(Coding coding, std::string compressed, uint64_t size) {
  const uint64_t length = compressed.size();
  return {.coding = coding,
          .data = {std::make_shared<MemorySource>("before" + std::move(compressed) + "behind"), 6,
                   length},
          .size = size};
}

}  // namespace ckptfs
