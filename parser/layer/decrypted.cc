// A request of the kernel is a small part of a chunk, which can only be authenticated as a whole.
// So the chunk of 2 MiB that a request touches is decrypted in the block cache, for the next
// fifteen requests. A chunk that a read covers completely is decrypted in the buffer of the reader,
// and one that is smaller than a request is decrypted again for each.
//
// Decryption is in place: the tag is compared before the first byte is decrypted, so after a
// failure the memory contains the encrypted bytes.

#include "parser/layer/decrypted.h"

#include <sodium.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

static_assert(Encryption::kKeySize == crypto_secretbox_KEYBYTES);
static_assert(Encryption::kNonceSize == crypto_secretbox_NONCEBYTES);
static_assert(Encryption::kMacSize == crypto_secretbox_MACBYTES);

// The kernel reads 128 KiB at a time, so most reads of a smaller chunk cover all of it.
constexpr uint64_t kMostUncached = uint64_t{64} << 10;

unsigned char* Raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* Raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

using Nonce = std::array<std::byte, Encryption::kNonceSize>;

Nonce NonceOf(const Encryption& encryption, uint64_t index) {
  Nonce nonce = encryption.nonce;
  Nonce added = {};
  for (size_t i = 0; i < sizeof index; ++i) added[i] = static_cast<std::byte>(index >> (8 * i));
  ::sodium_add(Raw(nonce.data()), Raw(added.data()), nonce.size());
  return nonce;
}

uint64_t ChunkCount(uint64_t size, uint64_t chunk_size) {
  return size / chunk_size + (size % chunk_size != 0 ? 1 : 0);
}

// Reads chunk `index` to `chunk`, which has its size, and decrypts it there. Returns false if that
// fails; the bytes are then still encrypted.
bool DecryptChunk(const Extent& encrypted, const Encryption& encryption, const SecretBytes& key,
                  uint64_t index, std::span<std::byte> chunk) {
  std::array<std::byte, Encryption::kMacSize> mac = {};
  encryption.macs.source->ReadAt(encryption.macs.offset + index * mac.size(), mac);
  encrypted.source->ReadAt(encrypted.offset + index * encryption.chunk_size, chunk);
  const Nonce nonce = NonceOf(encryption, index);
  return ::crypto_secretbox_open_detached(Raw(chunk.data()), Raw(chunk.data()), Raw(mac.data()),
                                          chunk.size(), Raw(nonce.data()),
                                          Raw(key.bytes().data())) == 0;
}

class DecryptedSource final : public ForwardingSource {
 public:
  DecryptedSource(Extent encrypted, const Encryption& encryption,
                  std::shared_ptr<const SecretBytes> key, std::shared_ptr<BlockCache> cache)
      : ForwardingSource(encrypted.source),
        encrypted_(std::move(encrypted)),
        encryption_(encryption),
        key_(std::move(key)),
        chunks_(std::move(cache), encrypted_.length, encryption.chunk_size,
                [this](uint64_t index, std::span<std::byte> chunk) { Decrypt(index, chunk); }) {}

  uint64_t size() const override { return encrypted_.length; }
  bool is_hole() const override { return false; }  // Zeros do not decrypt to zeros.

  void AdviseFile(ByteRange range) const override { source().AdviseFile(Chunks(range)); }

  void Prefetch(std::span<const ByteRange> ranges) const override {
    std::vector<ByteRange> chunks(ranges.size());
    std::ranges::transform(ranges, chunks.begin(), [&](ByteRange range) { return Chunks(range); });
    source().Prefetch(chunks);
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    while (!buffer.empty()) {
      const uint64_t index = offset / encryption_.chunk_size;
      const uint64_t begin = index * encryption_.chunk_size;
      const size_t chunk = std::min(encryption_.chunk_size, size() - begin);
      const size_t skipped = offset - begin;
      const size_t n = std::min(buffer.size(), chunk - skipped);
      ReadChunk(index, chunk, skipped, buffer.first(n));
      buffer = buffer.subspan(n);
      offset += n;
    }
  }

 private:
  // Returns the range of all chunks that `range` touches.
  ByteRange Chunks(ByteRange range) const {
    const uint64_t before = range.offset % encryption_.chunk_size;
    const uint64_t begin = range.offset - before;
    const uint64_t length = before + range.length;
    const uint64_t after =
        (encryption_.chunk_size - length % encryption_.chunk_size) % encryption_.chunk_size;
    const uint64_t most = size() - begin;
    return {.offset = encrypted_.offset + begin,
            .length = length > most || after > most - length ? most : length + after};
  }

  // Reads the bytes at `offset` of chunk `index`, which has `size` bytes.
  void ReadChunk(uint64_t index, size_t size, size_t offset, std::span<std::byte> buffer) const {
    if (buffer.size() == size) return Decrypt(index, buffer);
    if (size <= kMostUncached) {
      std::vector<std::byte> chunk(size);
      Decrypt(index, chunk);
      std::ranges::copy(std::span(chunk).subspan(offset, buffer.size()), buffer.begin());
    } else if (!chunks_.Read(index, offset, buffer)) {
      chunks_.ReadAlone(index, offset, buffer);
    }
  }

  void Decrypt(uint64_t index, std::span<std::byte> chunk) const {
    Cancellation::Check();
    if (DecryptChunk(encrypted_, encryption_, *key_, index, chunk)) return;
    const uint64_t begin = index * encryption_.chunk_size;
    Fail(EIO,
         "chunk {} (bytes {} to {}) authentication failed: wrong key, or corrupt or tampered data",
         index, begin, begin + chunk.size() - 1);
  }

  const Extent encrypted_;
  const Encryption encryption_;
  const std::shared_ptr<const SecretBytes> key_;
  SequentialBlocks chunks_;  // The last member: it uses the others.
};

void CheckExtent(const Extent& extent, std::string_view what) {
  const uint64_t size = extent.source->size();
  if (extent.offset <= size && extent.length <= size - extent.offset) return;
  Fail(EBADMSG, "the {} at byte {} need {} bytes, but their source ends at byte {}", what,
       extent.offset, extent.length, size);
}

}  // namespace

ByteSourcePtr MakeDecrypted(Extent encrypted, const Encryption& encryption,
                            std::shared_ptr<const SecretBytes> key,
                            std::shared_ptr<BlockCache> cache) {
  assert(key->bytes().size() == Encryption::kKeySize);
  CheckExtent(encrypted, "encrypted data");
  CheckExtent(encryption.macs, "authentication tags");
  if (encryption.chunk_size == 0) Fail(EBADMSG, "encrypted chunks have no bytes");
  if (const uint64_t chunk = std::min(encryption.chunk_size, encrypted.length);
      chunk > Encryption::kMostOfChunk) {
    Fail(EFBIG, "encrypted chunks have {} bytes, but at most {} are opened at once", chunk,
         Encryption::kMostOfChunk);
  }
  const uint64_t count = ChunkCount(encrypted.length, encryption.chunk_size);
  if (encryption.macs.length % Encryption::kMacSize != 0 ||
      encryption.macs.length / Encryption::kMacSize != count) {
    Fail(EBADMSG, "{} encrypted chunks need {} bytes of authentication tags each, but there are {}",
         count, Encryption::kMacSize, encryption.macs.length);
  }
  return std::make_shared<DecryptedSource>(std::move(encrypted), encryption, std::move(key),
                                           std::move(cache));
}

bool CanDecrypt(const Extent& encrypted, const Encryption& encryption, const SecretBytes& key,
                uint64_t index) {
  assert(index < ChunkCount(encrypted.length, encryption.chunk_size));
  const uint64_t begin = index * encryption.chunk_size;
  const size_t size = std::min(encryption.chunk_size, encrypted.length - begin);
  assert(size <= Encryption::kMostOfChunk);
  std::vector<std::byte> chunk(size);
  return DecryptChunk(encrypted, encryption, key, index, chunk);
}

}  // namespace ckptfs
