#include "parser/format/tensorizer/encryption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "tests/support/encrypter.h"
#include "tests/support/errors.h"
#include "tests/support/sources.h"

namespace ckptfs::tensorizer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr KeyDerivation kCheap = {.passes = 1, .memory = 8192};

const std::string kKey =
    FromHex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");

// The key that libsodium derives from the passphrase "test" with kCheap.
const std::string kDerived =
    FromHex("185d9543e6945bb30c6ecb2d1ac58a388ddfe954c34cf395a4fa12f986897662");

EncryptedTensor TensorOf(const Encrypted& encrypted, std::optional<KeyDerivation> derivation) {
  return {.data = encrypted.extent(),
          .encryption = {.derivation = derivation, .chunks = encrypted.encryption()}};
}

class KeysTest : public testing::Test {
 protected:
  // A tensor of `size` bytes in chunks of 1 KiB that `key` encrypts, the first `damaged` of which
  // are damaged.
  static EncryptedTensor Tensor(size_t size, const std::string& key,
                                std::optional<KeyDerivation> derivation = {}, size_t damaged = 0) {
    Encrypted encrypted = Encrypt(std::string(size, 'a'), 1024, *SecretOf(key));
    for (size_t i = 0; i < damaged; ++i) encrypted.data[i * 1024] ^= 1;
    return TensorOf(encrypted, derivation);
  }

  void Have(Secret::Kind kind, const std::string& bytes) {
    secret_ = std::make_shared<Secret>(Secret{.kind = kind,
                                              .bytes = SecretBytes(std::as_bytes(std::span(bytes))),
                                              .origin = "my annotations"});
  }
  void HaveKey(const std::string& bytes) { Have(Secret::Kind::kKey, bytes); }
  void HavePassphrase(const std::string& text) { Have(Secret::Kind::kPassphrase, text); }

  void Open(const std::vector<EncryptedTensor>& tensors) { keys_.Open(tensors); }

  // The key of `tensor` in hexadecimal; empty if it has none.
  std::string KeyFor(const EncryptedTensor& tensor) const {
    const auto key = keys_.KeyFor(tensor.encryption);
    return key == nullptr ? "" : ToHex(key->bytes());
  }
  static std::string Hex(const std::string& key) { return ToHex(std::as_bytes(std::span(key))); }

  std::shared_ptr<const Secret> secret_;
  std::vector<bool> asked_;  // Of each question: whether it takes a passphrase.
  Budget budget_;
  KeyRing keys_{[this](bool takes_passphrase) {
                  asked_.push_back(takes_passphrase);
                  return secret_;
                },
                budget_};
};

TEST_F(KeysTest, AreTheUsersOwn) {
  HaveKey(kKey);
  const auto tensor = Tensor(100, kKey);
  Open({tensor});
  EXPECT_TRUE(keys_.has_secret());
  EXPECT_EQ(KeyFor(tensor), Hex(kKey));
}

TEST_F(KeysTest, AreDerivedFromAPassphrase) {
  HavePassphrase("test");
  const auto tensor = Tensor(100, kDerived, kCheap);
  Open({tensor});
  EXPECT_TRUE(keys_.has_secret());
  EXPECT_EQ(KeyFor(tensor), Hex(kDerived));
}

TEST_F(KeysTest, OfAPassphraseMayBeTheUsersOwn) {
  HaveKey(kDerived);
  const auto tensor = Tensor(100, kDerived, kCheap);
  Open({tensor});
  EXPECT_EQ(KeyFor(tensor), Hex(kDerived));
}

TEST_F(KeysTest, OutliveTheirFinder) {
  HaveKey(kKey);
  std::shared_ptr<const SecretBytes> key;
  {
    const auto tensor = Tensor(100, kKey);
    KeyRing keys([&](bool) { return std::exchange(secret_, nullptr); }, budget_);
    keys.Open(std::vector{tensor});
    key = keys.KeyFor(tensor.encryption);
  }
  EXPECT_EQ(ToHex(key->bytes()), Hex(kKey));
}

// Data, nonce and tag are those of a file that other software has written.
TEST_F(KeysTest, OpenWhatOtherSoftwareHasEncryptedWithAPassphrase) {
  HavePassphrase("test");
  Encrypted encrypted{.chunk_size = 2 << 20,
                      .data = FromHex("7d4b0815c664f684d9f78363bd4c66e0"),
                      .macs = FromHex("be63935775061f6be1161865de91f7bd")};
  for (size_t i = 0; i < encrypted.nonce.size(); ++i)
    encrypted.nonce[i] = static_cast<std::byte>(160 + i);
  const auto tensor = TensorOf(encrypted, kCheap);
  Open({tensor});
  const auto source =
      MakeDecrypted(tensor.data, tensor.encryption.chunks, keys_.KeyFor(tensor.encryption),
                    std::make_shared<BlockCache>());
  EXPECT_EQ(ReadString(*source, 0, 16), FromHex("0000803f 00000040 00004040 00008040"));
}

TEST_F(KeysTest, AreAskedForOnce) {
  HavePassphrase("test");
  Open({Tensor(10, kDerived, kCheap), Tensor(20, kDerived, kCheap)});
  EXPECT_THAT(asked_, ElementsAre(true));
}

TEST_F(KeysTest, AreNoPassphrasesWhereTheFileTakesNone) {
  HaveKey(kKey);
  Open({Tensor(10, kKey)});
  EXPECT_THAT(asked_, ElementsAre(false));
}

TEST_F(KeysTest, AreNotAskedForIfNothingIsEncrypted) {
  Open({});
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(KeysTest, MayBeUnknown) {
  const auto tensor = Tensor(100, kKey);
  Open({tensor});
  EXPECT_FALSE(keys_.has_secret());
  EXPECT_EQ(KeyFor(tensor), "");
  EXPECT_EQ(keys_.NoKeyReason(tensor.encryption), "encrypted, but no key given: use -o key_file");
}

TEST_F(KeysTest, MayBeUnknownWhereAPassphraseWouldDo) {
  const auto tensor = Tensor(100, kDerived, kCheap);
  Open({tensor});
  EXPECT_EQ(keys_.NoKeyReason(tensor.encryption),
            "encrypted, but no key given: use -o key_file or -o passphrase_file");
}

TEST_F(KeysTest, MayBeUnknownWithoutATerminal) {
  KeyRing keys{AskSecret(), budget_};
  const auto tensor = Tensor(100, kKey);
  keys.Open(std::vector{tensor});
  EXPECT_EQ(keys.KeyFor(tensor.encryption), nullptr);
}

TEST_F(KeysTest, OfAPassphraseAreNotThoseOfATensorWithoutOne) {
  HavePassphrase("test");
  const auto with = Tensor(100, kDerived, kCheap);
  const auto without = Tensor(100, kKey);
  Open({with, without});
  EXPECT_EQ(KeyFor(with), Hex(kDerived));
  EXPECT_EQ(KeyFor(without), "");
  EXPECT_EQ(keys_.NoKeyReason(without.encryption),
            "encrypted with a key, but a passphrase was given");
}

TEST_F(KeysTest, DifferWhereTheirSaltsDiffer) {
  HavePassphrase("test");
  KeyDerivation salted = kCheap;
  salted.salt[0] = std::byte{1};
  const auto tensor = Tensor(100, kDerived, kCheap);
  const auto other = Tensor(100, kDerived, salted);
  Open({tensor, other});
  EXPECT_EQ(KeyFor(tensor), Hex(kDerived));
  EXPECT_NE(KeyFor(other), Hex(kDerived));
}

class WrongKeys : public KeysTest {};

TEST_F(WrongKeys, AreFoundOut) {
  HaveKey(std::string(32, 'k'));
  EXPECT_THAT(
      [&] { Open({Tensor(100, kKey)}); },
      Fails(EKEYREJECTED,
            "wrong key from my annotations, or corrupt chunks: cannot decrypt any of 1 tested"));
}

TEST_F(WrongKeys, AreTriedOnAFewChunksOnly) {
  HaveKey(std::string(32, 'k'));
  EXPECT_THAT(
      [&] {
        Open({Tensor(100'000, kKey), Tensor(90'000, kKey)});
      },
      Fails(EKEYREJECTED,
            "wrong key from my annotations, or corrupt chunks: cannot decrypt any of 8 tested"));
}

TEST_F(WrongKeys, ComeFromWrongPassphrases) {
  HavePassphrase("Test");
  EXPECT_THAT([&] { Open({Tensor(100, kDerived, kCheap)}); },
              Fails(EKEYREJECTED,
                    "wrong passphrase from my annotations, or corrupt chunks: cannot decrypt any "
                    "of 1 tested"));
}

TEST_F(WrongKeys, ShowAfterTheFirstDerivation) {
  HavePassphrase("Test");
  constexpr KeyDerivation kDear = {.passes = 3, .memory = uint64_t{1} << 30};
  const std::clock_t begin = std::clock();
  EXPECT_THAT(
      [&] {
        Open({Tensor(100, kDerived, kCheap), Tensor(100, kKey, kDear)});
      },
      Fails(EKEYREJECTED,
            "wrong passphrase from my annotations, or corrupt chunks: cannot decrypt any of 1 "
            "tested"));
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 2) << "derived what is dear, too";
}

TEST_F(WrongKeys, ArePassphrasesWhereAKeyIsNeeded) {
  HavePassphrase("test");
  EXPECT_THAT([&] { Open({Tensor(100, kKey)}); },
              Fails(EKEYREJECTED,
                    "it was encrypted with a key and not with a passphrase, so the one from my "
                    "annotations does not open it: give the 32 bytes of the key with -o key_file"));
}

TEST_F(WrongKeys, AreNotThoseOfACorruptChunk) {
  HaveKey(kKey);
  const auto tensor = Tensor(5000, kKey, {}, 4);
  Open({tensor});
  EXPECT_EQ(KeyFor(tensor), Hex(kKey));
}

TEST_F(WrongKeys, AreNotThoseOfCorruptTensorsThatAreSmall) {
  HaveKey(kKey);
  const auto damaged = Tensor(10, kKey, {}, 1);
  const auto whole = Tensor(20'000, kKey);
  Open({damaged, damaged, whole, damaged, damaged});
  EXPECT_EQ(KeyFor(whole), Hex(kKey));
}

TEST_F(WrongKeys, AreNotThoseOfAChunkThatCannotBeRead) {
  HaveKey(kKey);
  auto broken = Tensor(10, kKey);
  broken.data.source = std::make_shared<BrokenSource>("disk", 10, Error(EIO, "bad sector"));
  const auto whole = Tensor(20, kKey);
  Open({broken, whole});
  EXPECT_EQ(KeyFor(whole), Hex(kKey));
}

TEST_F(WrongKeys, AreNotDetectedIfNothingCanBeRead) {
  HaveKey(kKey);
  auto broken = Tensor(10, kKey);
  broken.data.source = std::make_shared<BrokenSource>("disk", 10, Error(EIO, "bad sector"));
  EXPECT_THAT([&] { Open({broken}); }, Fails(EIO, "bad sector"));
}

// The passphrase is not that of the file: it would have to be derived to find that out.
class DearKeys : public KeysTest {
 protected:
  void Open(const KeyDerivation& derivation) { KeysTest::Open({Tensor(10, kKey, derivation)}); }
};

TEST_F(DearKeys, TakeTooMuchMemory) {
  HavePassphrase("test");
  EXPECT_THAT([&] { Open({.passes = 1, .memory = uint64_t{4} << 40}); },
              Fails(EFBIG,
                    "the derivation of its key takes 4398046511104 bytes of memory (memlimit), but "
                    "at most 1073741824 are given"));
}

TEST_F(DearKeys, TakeTooManyPasses) {
  HavePassphrase("test");
  EXPECT_THAT([&] { Open({.passes = 5, .memory = uint64_t{1} << 30}); },
              Fails(EFBIG,
                    "the derivation of its key takes 5 passes (opslimit) over 1073741824 bytes, "
                    "but at most 4 are made"));
}

TEST_F(DearKeys, TakeTooManyPassesOverLittleMemory) {
  HavePassphrase("test");
  EXPECT_THAT([&] { Open({.passes = UINT64_MAX, .memory = 8192}); },
              Fails(EFBIG,
                    "the derivation of its key takes 18446744073709551615 passes (opslimit) over "
                    "8192 bytes, but at most 524288 are made"));
}

TEST_F(DearKeys, HaveTooLittleMemory) {
  HavePassphrase("test");
  EXPECT_THAT([&] { Open({.passes = 1, .memory = 8191}); },
              Fails(EBADMSG,
                    "the derivation of its key has 8191 bytes of memory (memlimit), but at least "
                    "8192 are needed"));
}

TEST_F(DearKeys, HaveNoPass) {
  HavePassphrase("test");
  EXPECT_THAT([&] { Open({.passes = 0, .memory = 8192}); },
              Fails(EBADMSG,
                    "the derivation of its key has 0 passes (opslimit), but at least 1 is needed"));
}

TEST_F(DearKeys, AreTooMany) {
  HavePassphrase("test");
  std::vector<EncryptedTensor> tensors;
  for (uint64_t passes = 1; passes <= 5; ++passes) {
    tensors.push_back(Tensor(10, kKey, KeyDerivation{.passes = passes, .memory = 8192}));
  }
  EXPECT_THAT([&] { KeysTest::Open(tensors); },
              Fails(EFBIG, "the keys of its tensors are derived in more than 4 ways"));
}

TEST_F(DearKeys, ExceedTheLimitTogether) {
  HavePassphrase("test");
  constexpr KeyDerivation kDear = {.passes = 3, .memory = uint64_t{1} << 30};
  KeyDerivation other = kDear;
  other.salt[0] = std::byte{1};
  EXPECT_THAT(
      [&] {
        KeysTest::Open({Tensor(10, kKey, kDear), Tensor(10, kKey, other)});
      },
      Fails(EFBIG,
            "the derivations of its keys take more than 4294967296 passes over bytes of "
            "memory"));
}

TEST_F(DearKeys, AreNotDerivedWhereTheKeyIsKnown) {
  HaveKey(kKey);
  EXPECT_NO_THROW(Open({.passes = UINT64_MAX, .memory = UINT64_MAX}));
}

TEST_F(DearKeys, AreNotDerivedWhereThereIsNoSecret) {
  EXPECT_NO_THROW(Open({.passes = UINT64_MAX, .memory = UINT64_MAX}));
}

}  // namespace
}  // namespace ckptfs::tensorizer
