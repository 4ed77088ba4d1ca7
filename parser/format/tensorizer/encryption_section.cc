#include "parser/format/tensorizer/encryption_section.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/layer/decrypted.h"

namespace ckptfs::tensorizer {
namespace {

constexpr std::string_view kWhat = "the section on its encryption";

// Some bytes of a section that are read one after another, by a few at a time.
class Section {
 public:
  explicit Section(const Extent& extent) : place_(extent) {}

  // Returns the next `Size` bytes.
  template <size_t Size>
  std::array<std::byte, Size> Take(std::string_view field) {
    std::array<std::byte, Size> bytes = {};
    const Extent taken = TakeExtent(Size, field);
    taken.source->ReadAt(taken.offset, bytes);
    return bytes;
  }

  // Returns where the next `length` bytes are.
  Extent TakeExtent(uint64_t length, std::string_view field) {
    if (length > place_.length) {
      Fail(EBADMSG, "{} at byte {}: {} needs {} bytes, but only {} are left", kWhat, place_.offset,
           field, length, place_.length);
    }
    Extent taken = {place_.source, place_.offset, length};
    place_.offset += length;
    place_.length -= length;
    return taken;
  }

  template <typename T>
  T Read(std::string_view field) {
    return ByteReader(kWhat, Take<sizeof(T)>(field)).template Read<T>(field);
  }

  void ExpectEnd(std::string_view what) const {
    if (place_.length == 0) return;
    Fail(EBADMSG, "{} has {} bytes at its end that belong to nothing", what, place_.length);
  }

 private:
  Extent place_;  // Of what is left.
};

KeyDerivation ReadDerivation(Section& record) {
  constexpr unsigned kPasswordHash = 1;
  constexpr int kArgon2id = 2;
  const auto method = record.Read<uint16_t>("method");
  if (method != kPasswordHash) Fail(EBADMSG, "its key is derived by the unknown method {}", method);
  KeyDerivation derivation;
  derivation.passes = record.Read<uint64_t>("number of passes");
  derivation.memory = record.Read<uint64_t>("bytes of memory");
  if (const auto algorithm = record.Read<int32_t>("algorithm"); algorithm != kArgon2id) {
    Fail(EBADMSG, "its key is derived by the unknown algorithm {}", algorithm);
  }
  const auto salt_size = record.Read<uint16_t>("length of the salt");
  if (salt_size != derivation.salt.size()) {
    Fail(EBADMSG, "the salt of its key has {} bytes, but needs {}", salt_size,
         derivation.salt.size());
  }
  derivation.salt = record.Take<sizeof derivation.salt>("salt");
  return derivation;
}

// One message is opened as a whole.
void CheckMessage(uint64_t data_size) {
  if (data_size > Encryption::kMostOfChunk) {
    Fail(EBADMSG, "its {} bytes are encrypted in one piece, but {} are the most", data_size,
         Encryption::kMostOfChunk);
  }
}

void CheckChunks(uint64_t chunk_size, uint64_t count, uint64_t data_size) {
  constexpr uint64_t kLeastChunk = 1024;  // Bytes, as for tensorizer; so is this:
  constexpr uint64_t kBlock = 64;
  if (chunk_size < kLeastChunk || chunk_size % kBlock != 0 ||
      chunk_size > Encryption::kMostOfChunk) {
    Fail(EBADMSG, "is encrypted in chunks of {} bytes, but {} to {} in steps of {} are possible",
         chunk_size, kLeastChunk, Encryption::kMostOfChunk, kBlock);
  }
  const uint64_t want = data_size / chunk_size + (data_size % chunk_size != 0 ? 1 : 0);
  if (count != want) {
    Fail(EBADMSG, "has {} tags, but its {} bytes in chunks of {} need {}", count, data_size,
         chunk_size, want);
  }
}

void ReadChunks(Section& record, uint64_t data_size, TensorEncryption& encryption) {
  encryption.chunk_size = record.Read<uint64_t>("length of a chunk");
  encryption.nonce = record.Take<sizeof encryption.nonce>("nonce");
  const auto count = record.Read<uint64_t>("number of tags");
  if (count == 1) {  // Then it is one message, whatever the length of a chunk.
    CheckMessage(data_size);
    encryption.chunk_size = data_size;
  } else {
    CheckChunks(encryption.chunk_size, count, data_size);
  }
  // With no more tags than bytes of data, which are in a file, this does not overflow.
  encryption.macs = record.TakeExtent(count * Encryption::kMacSize, "table of tags");
}

void ReadMessage(Section& record, uint64_t data_size, TensorEncryption& encryption) {
  CheckMessage(data_size);
  encryption.chunk_size = data_size;
  encryption.nonce = record.Take<sizeof encryption.nonce>("nonce");
  encryption.macs = record.TakeExtent(Encryption::kMacSize, "tag");
}

}  // namespace

std::optional<TensorEncryption> ReadEncryption(const Extent& extent, uint64_t data_size) {
  constexpr unsigned kDerivation = 1;
  constexpr unsigned kChunks = 2;
  constexpr unsigned kMessage = 3;
  Section section(extent);
  TensorEncryption encryption;
  bool has_data = false;
  const auto count = section.Read<uint16_t>("number of records");
  for (unsigned i = 0; i < count; ++i) {
    const auto length = section.Read<uint64_t>("length of a record");
    Section record(section.TakeExtent(length, "record"));
    const auto type = record.Read<uint16_t>("type of a record");
    if (type == kDerivation) {
      if (encryption.derivation) Fail(EBADMSG, "its key is derived in more ways than one");
      encryption.derivation = ReadDerivation(record);
    } else if (type == kChunks || type == kMessage) {
      if (has_data) Fail(EBADMSG, "is encrypted in more ways than one");
      has_data = true;
      const auto read = type == kChunks ? ReadChunks : ReadMessage;
      read(record, data_size, encryption);
    } else {
      Fail(EBADMSG, "is encrypted in the unknown way {}", type);
    }
    record.ExpectEnd("a record on its encryption");
  }
  section.ExpectEnd(kWhat);
  if (!has_data && count > 0) Fail(EBADMSG, "has a key, but nothing that tells how to use it");
  if (!has_data) return std::nullopt;
  return encryption;
}

}  // namespace ckptfs::tensorizer
