#include "tests/support/zip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <cassert>
#include <concepts>
#include <memory>
#include <span>
#include <utility>

namespace ckptfs {
namespace {

constexpr uint64_t kMost32 = 0xFFFFFFFF;
constexpr uint16_t kHasDescriptor = 1U << 3U;

// Appends integers, least significant byte first.
class Fields {
 public:
  template <std::unsigned_integral T>
  Fields& Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) text_ += static_cast<char>(value >> (8 * i) & 0xFFU);
    return *this;
  }
  Fields& Put16(uint64_t value) { return Put(static_cast<uint16_t>(value)); }
  Fields& Put32(uint64_t value) { return Put(static_cast<uint32_t>(value)); }
  // A field of 32 bits whose value is in a zip64 block if it does not fit.
  Fields& PutOrOnes(uint64_t value) { return Put32(std::min(value, kMost32)); }
  Fields& Put(std::string_view text) {
    text_ += text;
    return *this;
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string ExtraField(uint64_t id, const std::string& data) {
  return Fields().Put16(id).Put16(data.size()).Put(data).text();
}

// Torch's: for what is too large, but with 0 for the compressed size.
std::string LocalZip64Block(uint64_t size, uint64_t header) {
  Fields block;
  if (size >= kMost32) block.Put(size).Put(uint64_t{0});
  if (header >= kMost32) block.Put(header);
  return block.text().empty() ? "" : ExtraField(1, block.text());
}

// Pieces of bytes with zeros between them.
class SparseSource final : public ByteSource {
 public:
  SparseSource(std::map<uint64_t, std::string> pieces, uint64_t size)
      : pieces_(std::move(pieces)), size_(size) {}

  std::string name() const override { return "memory"; }
  uint64_t size() const override { return size_; }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size_ && buffer.size() <= size_ - offset);
    std::ranges::fill(buffer, std::byte{0});
    auto piece = pieces_.upper_bound(offset);
    if (piece != pieces_.begin()) --piece;
    for (; piece != pieces_.end() && piece->first < offset + buffer.size(); ++piece) {
      const uint64_t begin = std::max(offset, piece->first);
      const uint64_t end = std::min(offset + buffer.size(), piece->first + piece->second.size());
      if (begin >= end) continue;
      const auto bytes = std::as_bytes(std::span(piece->second));
      std::ranges::copy(bytes.subspan(begin - piece->first, end - begin),
                        buffer.subspan(begin - offset).begin());
    }
  }

 private:
  const std::map<uint64_t, std::string> pieces_;
  const uint64_t size_;
};

}  // namespace

ZipWriter::ZipWriter(ZipArchive archive) : archive_(std::move(archive)) {}

ZipWriter& ZipWriter::Add(std::string_view name, std::string_view data, const ZipEntry& entry) {
  AddMember(name, data, data.size(), entry);
  return *this;
}

ZipWriter& ZipWriter::AddZeros(std::string_view name, uint64_t size, const ZipEntry& entry) {
  AddMember(name, {}, size, entry);
  return *this;
}

ZipWriter& ZipWriter::AddDeflated(std::string_view name, std::string_view data, ZipEntry entry) {
  const std::string deflated = Deflate(data);
  entry.method = 8;
  if (!entry.size) entry.size = data.size();
  if (!entry.crc) entry.crc = Crc(data);
  AddMember(name, deflated, deflated.size(), std::move(entry));
  return *this;
}

void ZipWriter::AddMember(std::string_view name, std::string_view data, uint64_t size,
                          ZipEntry entry) {
  if (size == 0) {
    entry.flags &= static_cast<uint16_t>(~kHasDescriptor);
    entry.has_descriptor = false;
  }
  if (!entry.compressed_size) entry.compressed_size = size;
  if (!entry.size) entry.size = size;
  if (!entry.crc) entry.crc = data.size() == size ? Crc(data) : 0;
  const uint64_t header = size_ + (archive_.counts_prefix ? archive_.prefix.size() : 0);
  const std::string local_name = entry.local_name.value_or(std::string(name));

  std::string extra = entry.local_extra + LocalZip64Block(size, header);
  if (archive_.alignment != 0) {
    const uint64_t unaligned = size_ + 30 + local_name.size() + extra.size() + 4;
    const uint64_t padding =
        (archive_.alignment - unaligned % archive_.alignment) % archive_.alignment;
    extra += ExtraField(0x4246, std::string(padding, 'Z'));
  }
  std::string& piece = pieces_[size_];
  piece = Fields()
              .Put(entry.local_signature)
              .Put(uint16_t{0})
              .Put(entry.flags)
              .Put(entry.method)
              .Put(std::string(16, '\0'))
              .Put16(local_name.size())
              .Put16(extra.size())
              .Put(local_name)
              .Put(extra)
              .Put(data)
              .text();
  size_ += piece.size() + (size - data.size());
  if (entry.has_descriptor) {
    Fields descriptor;
    descriptor.Put("PK\7\10").Put(*entry.crc);
    if (size >= kMost32 || header >= kMost32) {
      descriptor.Put(size).Put(size);
    } else {
      descriptor.Put32(size).Put32(size);
    }
    pieces_[size_] = descriptor.text();
    size_ += descriptor.text().size();
  }
  AddEntry(name, entry, entry.header.value_or(header));
}

void ZipWriter::AddEntry(std::string_view name, const ZipEntry& entry, uint64_t header) {
  Fields block;
  uint64_t fields[] = {*entry.size, *entry.compressed_size, header};
  for (uint64_t& field : fields) {
    if (!entry.is_zip64 && field < kMost32) continue;
    block.Put(std::exchange(field, kMost32));
  }
  const std::string extra =
      entry.central_extra.value_or(block.text().empty() ? "" : ExtraField(1, block.text()));
  directory_ += Fields()
                    .Put("PK\1\2")
                    .Put(uint32_t{0})
                    .Put(entry.flags)
                    .Put(entry.method)
                    .Put(uint32_t{0})
                    .Put(*entry.crc)
                    .PutOrOnes(fields[1])
                    .PutOrOnes(fields[0])
                    .Put16(name.size())
                    .Put16(extra.size())
                    .Put16(entry.comment.size())
                    .Put(entry.disk)
                    .Put(std::string(6, '\0'))
                    .PutOrOnes(fields[2])
                    .Put(name)
                    .Put(extra)
                    .Put(entry.comment)
                    .text();
  ++entries_;
}

std::map<uint64_t, std::string> ZipWriter::Pieces() const {
  const uint64_t base = archive_.counts_prefix ? archive_.prefix.size() : 0;
  const uint64_t entries = archive_.entries.value_or(entries_);
  const uint64_t entries_here = archive_.entries_here.value_or(entries);
  const uint64_t size = archive_.directory_size.value_or(directory_.size());
  const uint64_t directory = archive_.directory.value_or(base + size_);
  Fields end;
  end.Put(directory_);
  if (archive_.has_zip64_end) {
    const uint64_t zip64_entries = archive_.zip64_entries.value_or(entries);
    end.Put("PK\6\6")
        .Put(uint64_t{44})
        .Put(uint16_t{0x031E})
        .Put(uint16_t{0x002D})
        .Put(uint32_t{archive_.disk})
        .Put(uint32_t{archive_.disk})
        .Put(archive_.zip64_entries.value_or(entries_here))
        .Put(zip64_entries)
        .Put(size)
        .Put(directory)
        .Put("PK\6\7")
        .Put(uint32_t{0})
        .Put(archive_.zip64_end.value_or(base + size_ + directory_.size()))
        .Put(archive_.disks);
  }
  end.Put("PK\5\6")
      .Put(archive_.disk)
      .Put(archive_.disk)
      .Put16(std::min<uint64_t>(entries_here, 0xFFFF))
      .Put16(std::min<uint64_t>(entries, 0xFFFF))
      .PutOrOnes(size)
      .PutOrOnes(directory)
      .Put16(archive_.comment.size())
      .Put(archive_.comment)
      .Put(archive_.trailing);

  std::map<uint64_t, std::string> pieces;
  pieces[0] = archive_.prefix;
  for (const auto& [offset, piece] : pieces_) pieces[archive_.prefix.size() + offset] += piece;
  pieces[archive_.prefix.size() + size_] += end.text();
  return pieces;
}

std::string ZipWriter::Finish() const {
  std::string text;
  for (const auto& [offset, piece] : Pieces()) {
    assert(offset == text.size());
    text += piece;
  }
  return text;
}

ByteSourcePtr ZipWriter::Source() const {
  auto pieces = Pieces();
  const auto& [offset, last] = *pieces.rbegin();
  const uint64_t size = offset + last.size();
  return std::make_shared<SparseSource>(std::move(pieces), size);
}

std::string Deflate(std::string_view data) {
  z_stream stream = {};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string deflated(deflateBound(&stream, data.size()), '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(deflated.data());
  stream.avail_out = static_cast<uInt>(deflated.size());
  deflate(&stream, Z_FINISH);
  deflated.resize(stream.total_out);
  deflateEnd(&stream);
  return deflated;
}

uint32_t Crc(std::string_view data) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

}  // namespace ckptfs
