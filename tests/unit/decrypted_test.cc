#include "parser/layer/decrypted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "tests/support/encrypter.h"
#include "tests/support/errors.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

// Large enough for the cache.
constexpr uint64_t kChunk = uint64_t{256} << 10;
constexpr uint64_t kHalf = kChunk / 2;

std::string Noise(size_t size) {
  std::mt19937_64 random(size);
  std::vector<uint64_t> words(size / sizeof(uint64_t) + 1);
  std::ranges::generate(words, random);
  return {reinterpret_cast<const char*>(words.data()), size};
}

// Bytes that count what is read of them.
class CountingSource final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  std::string name() const override { return "model.tensors"; }
  timespec modified() const override { return {.tv_sec = 123, .tv_nsec = 0}; }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    bytes_read += buffer.size();
    MemorySource::ReadAt(offset, buffer);
  }

  mutable std::atomic<uint64_t> bytes_read = 0;
};

// A tensor of five chunks and a bit, in the middle of a file.
class DecryptedTest : public testing::Test {
 protected:
  static constexpr uint64_t kBefore = 77;

  explicit DecryptedTest(uint64_t chunk_size = kChunk)
      : plain_(Noise(5 * chunk_size + chunk_size / 3)),
        encrypted_(Encrypt(plain_, chunk_size, *key_)) {}

  ByteSourcePtr Open() {
    stored_ =
        std::make_shared<CountingSource>(std::string(kBefore, 'x') + encrypted_.data + "after");
    return MakeDecrypted({stored_, kBefore, encrypted_.data.size()}, encrypted_.encryption(), key_,
                         opened_);
  }

  std::string Plain(uint64_t offset, uint64_t length) const {
    return plain_.substr(offset, length);
  }

  const std::shared_ptr<const SecretBytes> key_ = SecretOf("a key of just thirty-two letters");
  const std::string plain_;
  Encrypted encrypted_;
  std::shared_ptr<CountingSource> stored_;
  std::shared_ptr<BlockCache> opened_ = std::make_shared<BlockCache>();
};

class EncryptedInSmallChunks : public DecryptedTest {
 protected:
  EncryptedInSmallChunks() : DecryptedTest(1024) {}
};

TEST_F(DecryptedTest, IsAsLongAsThePlainText) { EXPECT_EQ(Open()->size(), plain_.size()); }

TEST_F(DecryptedTest, HasTheNameAndTheTimeOfItsFile) {
  const auto source = Open();
  EXPECT_EQ(source->name(), "model.tensors");
  EXPECT_EQ(source->modified().tv_sec, 123);
}

TEST_F(DecryptedTest, IsReadAsAWhole) {
  EXPECT_TRUE(ReadString(*Open(), 0, plain_.size()) == plain_);
}

TEST_F(DecryptedTest, IsReadFromTheMiddleOfOneChunkToThatOfAnother) {
  EXPECT_TRUE(ReadString(*Open(), 3 * kHalf, 6 * kHalf) == Plain(3 * kHalf, 6 * kHalf));
}

TEST_F(DecryptedTest, IsReadAcrossABorderOfChunks) {
  EXPECT_EQ(ReadString(*Open(), kChunk - 1, 2), Plain(kChunk - 1, 2));
}

TEST_F(DecryptedTest, IsReadToItsLastByte) {
  EXPECT_EQ(ReadString(*Open(), plain_.size() - 1, 1), Plain(plain_.size() - 1, 1));
}

// Waits until the thread of the cache has done what it was asked for.
void Wait(BlockCache& cache) {
  std::promise<void> done;
  cache.Prefetch(
      {.owner = cache.NewOwner(), .index = 0}, 1, [](std::span<std::byte>) {},
      [&] {
        done.set_value();
        return false;
      });
  done.get_future().wait();
}

TEST_F(DecryptedTest, IsDecryptedOnceForAllRequestsInOrder) {
  auto source = Open();
  std::string read;
  while (read.size() < plain_.size()) {
    const uint64_t n = std::min<uint64_t>(kHalf / 4, plain_.size() - read.size());
    read += ReadString(*source, read.size(), n);
  }
  EXPECT_TRUE(read == plain_);
  source.reset();  // Which waits for the thread of the cache.
  EXPECT_EQ(stored_->bytes_read, plain_.size());
  EXPECT_EQ(opened_->used(), 0U);
}

TEST_F(DecryptedTest, IsDecryptedAheadOfASequentialReader) {
  const auto source = Open();
  constexpr uint64_t kSecondRequest = uint64_t{128} << 10U;
  ReadString(*source, 0, 1);
  ReadString(*source, kSecondRequest, 1);
  Wait(*opened_);
  EXPECT_EQ(stored_->bytes_read, 2 * kChunk);
  // The second chunk is cached, and a read of it after the first one prefetches the third.
  EXPECT_EQ(ReadString(*source, kChunk + 3, 10), Plain(kChunk + 3, 10));
  Wait(*opened_);
  EXPECT_EQ(stored_->bytes_read, 3 * kChunk);
}

TEST_F(DecryptedTest, IsNotDecryptedAheadOfRandomReads) {
  ReadString(*Open(), 5, 1);
  Wait(*opened_);
  EXPECT_EQ(stored_->bytes_read, kChunk);
}

TEST_F(DecryptedTest, KeepsTheChunkThatWasReadInPart) {
  const auto source = Open();
  ReadString(*source, kChunk + 5, 1);
  EXPECT_EQ(opened_->used(), kChunk);
  EXPECT_EQ(ReadString(*source, kChunk + 3000, 10), Plain(kChunk + 3000, 10));
  EXPECT_EQ(stored_->bytes_read, kChunk);
}

TEST_F(DecryptedTest, NeedsNoCacheForAChunkThatIsReadAsAWhole) {
  ReadString(*Open(), kChunk, 2 * kChunk);
  EXPECT_EQ(opened_->used(), 0U);
  EXPECT_EQ(stored_->bytes_read, 2 * kChunk);
}

TEST_F(DecryptedTest, IsReadWhereTheCacheHasNoRoom) {
  opened_ = std::make_shared<BlockCache>(kHalf);
  const auto source = Open();
  EXPECT_EQ(ReadString(*source, 3 * kHalf, 1000), Plain(3 * kHalf, 1000));
  EXPECT_EQ(opened_->used(), 0U);
}

TEST_F(DecryptedTest, TakesTurnsWhereTheCacheHasNoRoom) {
  opened_ = std::make_shared<BlockCache>(kHalf);
  const auto source = Open();
  std::vector<std::string> read(8);
  {
    std::vector<std::jthread> readers;
    for (size_t i = 0; i < read.size(); ++i) {
      readers.emplace_back([&, i] { read[i] = ReadString(*source, i * kHalf + 3, 1000); });
    }
  }
  std::vector<std::string> expected;
  for (size_t i = 0; i < read.size(); ++i) expected.push_back(Plain(i * kHalf + 3, 1000));
  EXPECT_EQ(read, expected);
}

TEST_F(DecryptedTest, IsDecryptedOnceForManyReaders) {
  const auto source = Open();
  std::vector<std::string> read(8);
  std::atomic<unsigned> ready = 0;
  {
    std::vector<std::jthread> readers;
    for (size_t i = 0; i < read.size(); ++i) {
      readers.emplace_back([&, i] {
        ++ready;
        while (ready < read.size()) std::this_thread::yield();
        read[i] = ReadString(*source, 2 * kChunk + i * 1000, 1000);
      });
    }
  }
  std::vector<std::string> expected;
  for (size_t i = 0; i < read.size(); ++i) expected.push_back(Plain(2 * kChunk + i * 1000, 1000));
  EXPECT_EQ(read, expected);
  EXPECT_EQ(stored_->bytes_read, kChunk);
}

constexpr const char* kSecondIsCorrupt =
    "chunk 1 (bytes 262144 to 524287) authentication failed: wrong key, or corrupt or tampered "
    "data";

TEST_F(DecryptedTest, IsAnErrorWhereItWasTamperedWith) {
  encrypted_.data[3 * kHalf] ^= 1;
  const auto source = Open();
  EXPECT_THAT([&] { ReadString(*source, kChunk, 1); }, Fails(EIO, kSecondIsCorrupt));
  EXPECT_THAT([&] { ReadString(*source, kChunk, kChunk); }, Fails(EIO, kSecondIsCorrupt));
  EXPECT_THAT([&] { ReadString(*source, 0, plain_.size()); }, Fails(EIO, kSecondIsCorrupt));
}

TEST_F(DecryptedTest, IsAnErrorEachTimeItIsRead) {
  encrypted_.data[3 * kHalf] ^= 1;
  const auto source = Open();
  EXPECT_THAT([&] { ReadString(*source, kChunk, 1); }, Fails(EIO, kSecondIsCorrupt));
  EXPECT_THAT([&] { ReadString(*source, kChunk, 1); }, Fails(EIO, kSecondIsCorrupt));
  EXPECT_EQ(opened_->used(), 0U);
}

TEST_F(DecryptedTest, IsRightBesideAChunkThatWasTamperedWith) {
  encrypted_.data[3 * kHalf] ^= 1;
  const auto source = Open();
  EXPECT_TRUE(ReadString(*source, 0, kChunk) == Plain(0, kChunk));
  EXPECT_EQ(ReadString(*source, 2 * kChunk, 1000), Plain(2 * kChunk, 1000));
}

TEST_F(DecryptedTest, IsAnErrorWhereATagWasTamperedWith) {
  encrypted_.macs[Encryption::kMacSize] ^= 1;
  const auto source = Open();
  EXPECT_THAT([&] { ReadString(*source, 2 * kChunk - 1, 2); }, Fails(EIO, kSecondIsCorrupt));
  EXPECT_EQ(ReadString(*source, 2 * kChunk, 2), Plain(2 * kChunk, 2));
}

TEST_F(DecryptedTest, GivesNothingAwayOfWhatItCannotAuthenticate) {
  encrypted_.macs[Encryption::kMacSize] ^= 1;
  const auto source = Open();
  std::string buffer(kChunk, '\0');
  EXPECT_THAT([&] { source->ReadAt(kChunk, std::as_writable_bytes(std::span(buffer))); },
              Fails(EIO, kSecondIsCorrupt));
  EXPECT_TRUE(buffer == encrypted_.data.substr(kChunk, kChunk));
}

TEST_F(DecryptedTest, IsAnErrorWhereChunksHaveChangedPlaces) {
  std::swap_ranges(encrypted_.data.begin(), encrypted_.data.begin() + kChunk,
                   encrypted_.data.begin() + kChunk);
  std::swap_ranges(encrypted_.macs.begin(), encrypted_.macs.begin() + Encryption::kMacSize,
                   encrypted_.macs.begin() + Encryption::kMacSize);
  const auto source = Open();
  EXPECT_THAT([&] { ReadString(*source, kChunk, 1); }, Fails(EIO, kSecondIsCorrupt));
}

TEST_F(DecryptedTest, IsAnErrorWithAnotherKey) {
  stored_ = std::make_shared<CountingSource>(encrypted_.data);
  const auto source = MakeDecrypted({stored_, 0, stored_->size()}, encrypted_.encryption(),
                                    std::make_shared<SecretBytes>(Encryption::kKeySize), opened_);
  EXPECT_THAT([&] { ReadString(*source, kChunk, 1); }, Fails(EIO, kSecondIsCorrupt));
}

TEST_F(DecryptedTest, RequiresTheRightKey) {
  EXPECT_TRUE(CanDecrypt(encrypted_.extent(), encrypted_.encryption(), *key_, 0));
  EXPECT_TRUE(CanDecrypt(encrypted_.extent(), encrypted_.encryption(), *key_, 5));
  EXPECT_FALSE(CanDecrypt(encrypted_.extent(), encrypted_.encryption(),
                          SecretBytes(Encryption::kKeySize), 0));
}

TEST_F(EncryptedInSmallChunks, IsReadAsAWhole) {
  EXPECT_EQ(ReadString(*Open(), 0, plain_.size()), plain_);
}

TEST_F(EncryptedInSmallChunks, IsReadFromTheMiddleOfOneChunkToThatOfAnother) {
  EXPECT_EQ(ReadString(*Open(), 1000, 3000), Plain(1000, 3000));
}

TEST_F(EncryptedInSmallChunks, NeedsNoCache) {
  ReadString(*Open(), 1000, 1);
  EXPECT_EQ(opened_->used(), 0U);
}

TEST_F(EncryptedInSmallChunks, IsAnErrorWhereItWasTamperedWith) {
  encrypted_.data[5130] ^= 1;
  const auto source = Open();
  EXPECT_THAT([&] { ReadString(*source, 5120, 1); },
              Fails(EIO,
                    "chunk 5 (bytes 5120 to 5460) authentication failed: wrong key, or corrupt or "
                    "tampered data"));
}

// The tags are those of a file that other software has written.
TEST(Encrypted, HasNoncesThatWrapAround) {
  std::string plain(2560, '\0');
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<char>(7 * i + 3);
  std::array<std::byte, Encryption::kNonceSize> nonce = {};
  nonce.fill(std::byte{0xff});
  nonce[0] = std::byte{0xfe};
  const auto key =
      SecretOf(FromHex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"));
  Encrypted encrypted = Encrypt(plain, 1024, *key, nonce);
  EXPECT_EQ(encrypted.data.substr(0, 16), FromHex("7feacbe0b6d8bf6a16352929eb765768"));
  encrypted.macs = FromHex(
      "2331 81ad 1581 1a95 2b03 eade 824e 9c5b  a9d3 14b9 6e22 c11c ce9e 01e4 5afc e1bf"
      "f847 ad59 f538 6ed9 cee2 089f 8179 00c7");
  const auto source = MakeDecrypted(encrypted.extent(), encrypted.encryption(), key,
                                    std::make_shared<BlockCache>());
  EXPECT_EQ(ReadString(*source, 0, 2560), plain);
}

class EncryptedWrongly : public testing::Test {
 protected:
  ByteSourcePtr Open(Extent data, const Encryption& encryption) const {
    return MakeDecrypted(std::move(data), encryption, key_, std::make_shared<BlockCache>());
  }

  const std::shared_ptr<const SecretBytes> key_ =
      std::make_shared<SecretBytes>(Encryption::kKeySize);
  const Encrypted encrypted_ = Encrypt(std::string(2000, 'a'), 1024, *key_);
  Extent data_ = encrypted_.extent();
  Encryption encryption_ = encrypted_.encryption();
};

TEST_F(EncryptedWrongly, HasTooFewTags) {
  encryption_.macs.length = 16;
  EXPECT_THAT([&] { Open(data_, encryption_); },
              Fails(EBADMSG,
                    "2 encrypted chunks need 16 bytes of authentication tags each, but there are "
                    "16"));
}

TEST_F(EncryptedWrongly, HasTagsThatAreCutOff) {
  data_.length = 1024;
  encryption_.macs.length = 31;
  EXPECT_THAT([&] { Open(data_, encryption_); },
              Fails(EBADMSG,
                    "1 encrypted chunks need 16 bytes of authentication tags each, but there are "
                    "31"));
}

TEST_F(EncryptedWrongly, HasTagsBeyondTheFile) {
  encryption_.macs.offset = 1;
  EXPECT_THAT([&] { Open(data_, encryption_); },
              Fails(EBADMSG,
                    "the authentication tags at byte 1 need 32 bytes, but their source ends at "
                    "byte 32"));
}

TEST_F(EncryptedWrongly, HasDataBeyondTheFile) {
  data_.length = UINT64_MAX;
  EXPECT_THAT([&] { Open(data_, encryption_); },
              Fails(EBADMSG,
                    "the encrypted data at byte 0 need 18446744073709551615 bytes, but their "
                    "source ends at byte 2000"));
}

TEST_F(EncryptedWrongly, HasChunksWithoutBytes) {
  encryption_.chunk_size = 0;
  EXPECT_THAT([&] { Open(data_, encryption_); }, Fails(EBADMSG, "encrypted chunks have no bytes"));
}

// Zeros that need no memory.
class Zeros final : public ByteSource {
 public:
  std::string name() const override { return "zeros"; }
  uint64_t size() const override { return uint64_t{1} << 40; }
  void ReadAt(uint64_t /*offset*/, std::span<std::byte> buffer) const override {
    std::ranges::fill(buffer, std::byte{0});
  }
};

TEST_F(EncryptedWrongly, HasChunksThatAreTooLarge) {
  encryption_.chunk_size = (uint64_t{64} << 20) + 1;
  EXPECT_THAT(
      [&] {
        Open({std::make_shared<Zeros>(), 0, uint64_t{1} << 30}, encryption_);
      },
      Fails(EFBIG,
            "encrypted chunks have 67108865 bytes, but at most 67108864 are opened at once"));
}

TEST_F(EncryptedWrongly, ButNotWithoutAnyChunk) {
  data_.length = 0;
  encryption_.macs.length = 0;
  EXPECT_EQ(Open(data_, encryption_)->size(), 0U);
}

}  // namespace
}  // namespace ckptfs
