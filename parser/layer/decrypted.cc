// A request of the kernel is a thin slice of a chunk, and to authenticate the slice is to
// authenticate the chunk. So the chunk of 2 MiB that a request touches is opened in the block
// cache, where the fifteen requests that follow find it. A chunk that a read wants as a whole is
// opened in the reader's own memory, and one that is smaller than a request is opened again for
// each.
//
// Opening is done in place: the tag is compared before the first byte is decrypted, so what is in
// memory after a failure is what is in the file.

#include "parser/layer/decrypted.h"

#include <sodium.h>

#include <algorithm>
#include <atomic>
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

// The kernel asks for 128 KiB: a read of a smaller chunk mostly wants all of it.
constexpr uint64_t kMostUnkept = uint64_t{64} << 10;

// Follows no chunk, and none follows it.
constexpr uint64_t kNoChunk = std::numeric_limits<uint64_t>::max() - 1;

// Who reads this byte of a chunk probably reads in order, as does who comes to a chunk from the one
// before it: the byte is in the second piece that the kernel asks for then. He will want the next
// chunk, too.
constexpr size_t kSign = size_t{128} << 10;

bool Has(size_t offset, size_t length, size_t byte) {
  return offset <= byte && byte - offset < length;
}

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

// Reads chunk `index`, all of which `chunk` takes, and opens it there. Returns whether that worked;
// if not, what was read is still encrypted.
bool OpenChunk(const Extent& encrypted, const Encryption& encryption, const SecretBytes& key,
               uint64_t index, std::span<std::byte> chunk) {
  std::array<std::byte, Encryption::kMacSize> mac = {};
  encryption.macs.source->ReadAt(encryption.macs.offset + index * mac.size(), mac);
  encrypted.source->ReadAt(encrypted.offset + index * encryption.chunk_size, chunk);
  const Nonce nonce = NonceOf(encryption, index);
  return ::crypto_secretbox_open_detached(Raw(chunk.data()), Raw(chunk.data()), Raw(mac.data()),
                                          chunk.size(), Raw(nonce.data()),
                                          Raw(key.bytes().data())) == 0;
}

class DecryptedSource final : public ByteSource {
 public:
  DecryptedSource(Extent encrypted, const Encryption& encryption,
                  std::shared_ptr<const SecretBytes> key, std::shared_ptr<BlockCache> opened)
      : encrypted_(std::move(encrypted)),
        encryption_(encryption),
        key_(std::move(key)),
        opened_(std::move(opened)),
        owner_(opened_->NewOwner()) {}

  DecryptedSource(const DecryptedSource&) = delete;
  DecryptedSource& operator=(const DecryptedSource&) = delete;
  ~DecryptedSource() override { opened_->Leave(owner_); }

  std::string name() const override { return encrypted_.source->name(); }
  uint64_t size() const override { return encrypted_.length; }
  timespec modified() const override { return encrypted_.source->modified(); }
  bool is_remote() const override { return encrypted_.source->is_remote(); }

  void AdviseFile(ByteRange range) const override { encrypted_.source->AdviseFile(Chunks(range)); }

  void Prefetch(std::span<const ByteRange> ranges) const override {
    std::vector<ByteRange> chunks(ranges.size());
    std::ranges::transform(ranges, chunks.begin(), [&](ByteRange range) { return Chunks(range); });
    encrypted_.source->Prefetch(chunks);
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
  // Where the chunks are that `range` touches.
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

  // Reads what is at `offset` of chunk `index`, which has `size` bytes.
  void ReadChunk(uint64_t index, size_t size, size_t offset, std::span<std::byte> buffer) const {
    const auto open = [&](std::span<std::byte> chunk) { Open(index, chunk); };
    if (buffer.size() == size) return open(buffer);
    if (size <= kMostUnkept) {
      std::vector<std::byte> chunk(size);
      open(chunk);
      std::ranges::copy(std::span(chunk).subspan(offset, buffer.size()), buffer.begin());
    } else {
      const bool is_next = current_.exchange(index) + 1 == index;
      if (is_next || Has(offset, buffer.size(), kSign)) OpenNext(index);
      if (opened_->Read({.owner = owner_, .index = index}, size, offset, buffer, open)) return;
      opened_->ReadAlone(size, offset, buffer, open);
    }
  }

  // Has the chunk after `index`, if there is one, opened beside the reads, for who reads in order.
  void OpenNext(uint64_t index) const {
    const uint64_t next = index + 1;
    const uint64_t begin = next * encryption_.chunk_size;
    if (begin >= size()) return;
    opened_->Prefetch(
        {.owner = owner_, .index = next}, std::min(encryption_.chunk_size, size() - begin),
        [this, next](std::span<std::byte> chunk) { Open(next, chunk); },
        [this, index] { return current_ == index; });
  }

  void Open(uint64_t index, std::span<std::byte> chunk) const {
    Cancellation::Check();
    if (OpenChunk(encrypted_, encryption_, *key_, index, chunk)) return;
    const uint64_t begin = index * encryption_.chunk_size;
    Fail(EIO,
         "chunk {} (bytes {} to {}) is not what was encrypted with this key: it is damaged or was "
         "tampered with",
         index, begin, begin + chunk.size() - 1);
  }

  const Extent encrypted_;
  const Encryption encryption_;
  const std::shared_ptr<const SecretBytes> key_;
  const std::shared_ptr<BlockCache> opened_;
  const uint64_t owner_;
  mutable std::atomic<uint64_t> current_ = kNoChunk;  // That was asked for last.
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
                            std::shared_ptr<BlockCache> opened) {
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
                                           std::move(opened));
}

bool CanDecrypt(const Extent& encrypted, const Encryption& encryption, const SecretBytes& key,
                uint64_t index) {
  assert(index < ChunkCount(encrypted.length, encryption.chunk_size));
  const uint64_t begin = index * encryption.chunk_size;
  const size_t size = std::min(encryption.chunk_size, encrypted.length - begin);
  assert(size <= Encryption::kMostOfChunk);
  std::vector<std::byte> chunk(size);
  return OpenChunk(encrypted, encryption, key, index, chunk);
}

}  // namespace ckptfs
