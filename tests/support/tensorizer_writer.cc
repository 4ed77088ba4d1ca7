#include "tests/support/tensorizer_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "parser/io/simple_sources.h"

namespace ckptfs {
namespace {

constexpr size_t kFileHeaderSize = 73;
constexpr size_t kOffsetsSize = 16;

// `size` bytes of length, and the text.
std::string Counted(std::string_view text, size_t size) {
  return LittleEndian(text.size(), size).append(text);
}

bool IsLong(const TensorizerWriter::Tensor& tensor) {
  return std::ranges::any_of(tensor.shape, [](uint64_t n) { return n >> 32U != 0; });
}

// The fields that the index entry and the header share, except the kind, whose position differs.
std::string Described(const TensorizerWriter::Tensor& tensor, bool is_long) {
  std::string text = Counted(tensor.dtype, 1) + LittleEndian(tensor.shape.size(), 1);
  for (const uint64_t n : tensor.shape) text += LittleEndian(n, is_long ? 8 : 4);
  return text;
}

std::string DataSize(const TensorizerWriter::Tensor& tensor) {
  const auto size = tensor.data_size.value_or(static_cast<int64_t>(tensor.data.size()));
  return LittleEndian(static_cast<uint64_t>(size), 8);
}

}  // namespace

std::string LittleEndian(uint64_t number, size_t size) {
  std::string bytes;
  for (; size > 0; --size, number >>= 8U) bytes += static_cast<char>(number & 0xFFU);
  return bytes;
}

TensorizerWriter& TensorizerWriter::Add(const Tensor& tensor, const Tensor& in_index) {
  const bool is_long = has_tags() && IsLong(in_index);
  Added added;
  if (has_tags()) added.entry = LittleEndian(is_long ? 5 : 1, 4);
  added.entry += Counted(in_index.name, 2) + LittleEndian(in_index.kind, 1);
  added.entry += Described(in_index, is_long);
  added.length = DataSize(in_index);
  added.data = tensor.data;

  std::string hashes = LittleEndian(tensor.hashes.size(), 1);
  for (const auto& [type, value] : tensor.hashes) {
    hashes += LittleEndian(type, 1) + Counted(value, 1);
  }
  std::string header = LittleEndian(tensor.module, 2) + LittleEndian(tensor.kind, 1) +
                       Counted(tensor.name, 2) + Described(tensor, is_long) + Counted(hashes, 2);
  if (is_encrypted()) {
    const std::string none(2, '\0');
    header += Counted(tensor.encryption.empty() ? none : tensor.encryption, 8);
  }
  header += tensor.more + DataSize(tensor);
  added.header = LittleEndian(header.size() + 8, 8) + header;
  tensors_.push_back(std::move(added));
  return *this;
}

TensorizerWriter& TensorizerWriter::AddRoom(size_t size) {
  room_ += size;
  return *this;
}

size_t TensorizerWriter::index_size() const {
  return entry_offset(tensors_.size()) - kFileHeaderSize + room_;
}

size_t TensorizerWriter::entry_offset(size_t number) const {
  size_t offset = kFileHeaderSize;
  for (size_t i = 0; i < number; ++i) {
    offset += tensors_[i].entry.size() + kOffsetsSize + tensors_[i].length.size();
  }
  return offset;
}

size_t TensorizerWriter::offsets_in_entry(size_t number) const {
  return entry_offset(number) + tensors_[number].entry.size();
}

size_t TensorizerWriter::header_offset(size_t number) const {
  size_t offset = kFileHeaderSize + index_size();
  for (size_t i = 0; i < number; ++i) offset += tensors_[i].header.size() + tensors_[i].data.size();
  return offset;
}

std::string TensorizerWriter::Finish() const {
  uint64_t data_bytes = 0;
  for (const Added& tensor : tensors_) data_bytes += tensor.data.size();
  std::string file = "|TZR|" + LittleEndian(version_, 4) + LittleEndian(flags_, 32) +
                     LittleEndian(data_bytes, 8) + LittleEndian(0, 8) +
                     LittleEndian(tensors_.size(), 8) + LittleEndian(index_size(), 8);
  size_t place = header_offset(0);
  for (const Added& tensor : tensors_) {
    file += tensor.entry + LittleEndian(place, 8) + LittleEndian(place + tensor.header.size(), 8) +
            tensor.length;
    place += tensor.header.size() + tensor.data.size();
  }
  file.append(room_, '\0');
  for (const Added& tensor : tensors_) file += tensor.header + tensor.data;
  return file + LittleEndian(0, 8);
}

ByteSourcePtr TensorizerWriter::Source() const { return std::make_shared<MemorySource>(Finish()); }

std::string EncryptionSection(const std::vector<std::pair<unsigned, std::string>>& records) {
  std::string section = LittleEndian(records.size(), 2);
  for (const auto& [type, record] : records) {
    section += Counted(LittleEndian(type, 2) + record, 8);
  }
  return section;
}

std::string ChunksRecord(uint64_t chunk_size, std::string_view nonce, std::string_view tags) {
  constexpr size_t kTagSize = 16;
  return LittleEndian(chunk_size, 8).append(nonce) + LittleEndian(tags.size() / kTagSize, 8) +
         std::string(tags);
}

std::string DerivationRecord(uint64_t passes, uint64_t memory, std::string_view salt,
                             unsigned method, unsigned algorithm) {
  return LittleEndian(method, 2) + LittleEndian(passes, 8) + LittleEndian(memory, 8) +
         LittleEndian(algorithm, 4) + Counted(salt, 2);
}

}  // namespace ckptfs
