// Files compressed by gzip, usually tar archives (.nemo, .tar.gz). They are decoded on demand, with
// access points for random access (layer/decompressed.h).
//
// The decoded size is not known in advance: the size at the end of the file is modulo 2^32, and
// several gzip streams may be concatenated. The file is therefore decoded once to find its size.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/decoder.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/format/archive/files.h"
#include "parser/format/archive/record.h"
#include "parser/layer/decompressed.h"

namespace ckptfs {
namespace {

constexpr std::string_view kMagic = "\x1f\x8b\x08";
constexpr size_t kMostGzipHeader = 65536;  // Bytes, with the name and the comment.
constexpr uint64_t kTrailer = 8;           // Bytes: CRC-32 and size.

bool MatchesGzip(const Probe& probe) {
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  return head.starts_with(kMagic);
}

// Returns the length of the header (RFC 1952).
uint64_t LengthOfHeader(const ByteSource& file) {
  constexpr unsigned kCrc = 2;
  constexpr unsigned kExtra = 4;
  constexpr unsigned kName = 8;
  constexpr unsigned kComment = 16;
  constexpr unsigned kKnown = 31;
  std::vector<std::byte> bytes(std::min<uint64_t>(kMostGzipHeader, file.size()));
  file.ReadAt(0, bytes);
  ByteReader reader("gzip header", bytes);
  reader.Take(kMagic.size(), "magic");
  const auto flags = reader.Read<uint8_t>("flags");
  if (flags > kKnown) Fail(EBADMSG, "gzip header: the flags {:#x} are not known", flags);
  reader.Take(6, "time and system");
  if ((flags & kExtra) != 0) reader.Take(reader.Read<uint16_t>("length"), "extra field");
  for (const unsigned text : {kName, kComment}) {
    if ((flags & text) == 0) continue;
    while (reader.Read<uint8_t>("name or comment") != 0) {
    }
  }
  if ((flags & kCrc) != 0) reader.Take(2, "CRC");
  return reader.offset();
}

// Returns the decoded size of `stream`, at most `most`, and checks its end.
uint64_t Measure(const Extent& stream, uint64_t most) {
  constexpr size_t kChunk = size_t{1} << 18;
  const auto decoder = MakeDeflateDecoder();
  std::vector<std::byte> in(static_cast<size_t>(std::min<uint64_t>(kChunk, stream.length)));
  std::vector<std::byte> out(kChunk);
  uint64_t read = 0;
  uint64_t made = 0;
  std::span<const std::byte> input;
  for (;;) {
    if (input.empty() && read < stream.length) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(in.size(), stream.length - read));
      stream.source->ReadAt(stream.offset + read, std::span(in).first(n));
      read += n;
      input = std::span(in).first(n);
    }
    std::span<std::byte> output = out;
    const size_t before = input.size();
    const Decoder::Status status = decoder->Run(input, output);
    made += out.size() - output.size();
    if (made > most) {
      Fail(ENOTSUP,
           "decompresses to more than {} MiB, the limit of a gzip file of this size: unpack it "
           "first",
           most >> 20U);
    }
    if (status == Decoder::Status::kCorrupt) {
      Fail(EBADMSG, "gzip: {} at byte {}", decoder->damage(), stream.offset + read - input.size());
    }
    if (status == Decoder::Status::kEnd) break;
    const bool is_stuck = input.size() == before && output.size() == out.size();
    if (is_stuck && read == stream.length) {
      Fail(EBADMSG, "gzip: unexpected end of file after {} decoded bytes", made);
    }
  }
  const uint64_t rest = stream.length - (read - input.size());
  if (rest != 0) {
    Fail(ENOTSUP, "{} bytes after the gzip stream, perhaps another one: unpack it first", rest);
  }
  return made;
}

Checkpoint ParseGzip(const Source& source, const ReadOptions& options) {
  const ByteSourcePtr& file = source.file;
  const uint64_t begin = LengthOfHeader(*file);
  if (file->size() - begin < kTrailer) Fail(EBADMSG, "gzip: unexpected end of file");
  const Extent stream = {file, begin, file->size() - begin - kTrailer};
  ArchiveAllowance own(file->size());
  ArchiveAllowance& allowance = options.archives != nullptr ? *options.archives : own;
  if (allowance.depth == ArchiveAllowance::kMostDepth) {
    Fail(ENOTSUP, "archives are nested more than {} deep", ArchiveAllowance::kMostDepth);
  }
  const uint64_t size = Measure(stream, allowance.left() / 2);
  allowance.Spend(2 * size);
  std::array<std::byte, kTrailer> trailer = {};
  file->ReadAt(file->size() - kTrailer, trailer);
  ByteReader reader("gzip trailer", trailer);
  const auto crc = reader.Read<uint32_t>("CRC-32");
  if (reader.Read<uint32_t>("size") != static_cast<uint32_t>(size)) {
    Fail(EBADMSG, "gzip: size mismatch ({} decompressed bytes)", size);
  }
  const auto decoding = std::make_shared<Decoding>(std::make_shared<BlockCache>(), options.scratch);
  const ByteSourcePtr decoded =
      MakeDecompressed({.coding = Coding::kDeflate, .data = stream, .size = size}, crc, decoding);
  ReadOptions inner = options;
  inner.archives = &allowance;
  ++allowance.depth;
  Checkpoint checkpoint = ReadCheckpoint(decoded, "gzip", inner);
  --allowance.depth;
  const Record record{.data = {decoded, 0, size}, .member = "", .is_in_file = false};
  Relocate(checkpoint.root, decoded, record, "");
  return checkpoint;
}

}  // namespace

extern const Format gzip_format{
    .name = "gzip", .matches = MatchesGzip, .parse = ParseGzip, .is_archive = true};

}  // namespace ckptfs
