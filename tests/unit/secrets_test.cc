#include "fs/secrets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "tests/support/encrypter.h"
#include "tests/support/errors.h"

namespace ckptfs {
namespace {

constexpr const char* kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1E1F";

// A folder for files, and an environment without secrets, before and after each test.
class SecretsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "ckptfs-secrets-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ForgetEnvironment();
    options_.source = "model.tensors";
  }
  void TearDown() override {
    ForgetEnvironment();
    std::filesystem::remove_all(folder_);
  }

  std::string File(const std::string& contents) const {
    std::string path = folder_ + "/secret";
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }

  static void SetVariable(const char* name, const std::string& value) {
    ASSERT_EQ(::setenv(name, value.c_str(), 1), 0);
  }

  std::shared_ptr<const Secret> Get() const { return Secrets(options_).Get(false); }

  std::string folder_;
  Options options_;

 private:
  static void ForgetEnvironment() {
    ::unsetenv("CKPTFS_KEY");
    ::unsetenv("CKPTFS_PASSPHRASE");
  }
};

std::string TextOf(const Secret& secret) {
  const auto bytes = secret.bytes.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(SecretsTest, AreNoneIfNothingIsGiven) { EXPECT_EQ(Get(), nullptr); }

TEST_F(SecretsTest, MayBeAKeyInAFile) {
  options_.key_file = File(FromHex(kDigits));
  const auto secret = Get();
  EXPECT_EQ(secret->kind, Secret::Kind::kKey);
  EXPECT_EQ(TextOf(*secret), FromHex(kDigits));
  EXPECT_EQ(secret->origin, "key_file " + options_.key_file);
}

TEST_F(SecretsTest, MayBeAPassphraseInAFile) {
  options_.passphrase_file = File(" p\xc3\xa4ss\nphrase ");
  const auto secret = Get();
  EXPECT_EQ(secret->kind, Secret::Kind::kPassphrase);
  EXPECT_EQ(TextOf(*secret), " p\xc3\xa4ss\nphrase ");
  EXPECT_EQ(secret->origin, "passphrase_file " + options_.passphrase_file);
}

TEST_F(SecretsTest, HaveNoEndOfLine) {
  options_.passphrase_file = File("passphrase\r\n\n");
  EXPECT_EQ(TextOf(*Get()), "passphrase");
}

TEST_F(SecretsTest, MayBeLong) {
  options_.passphrase_file = File(std::string(65536, 'p'));
  EXPECT_EQ(TextOf(*Get()), std::string(65536, 'p'));
}

TEST_F(SecretsTest, ComeOutOfAPipe) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  {
    const Fd writer(ends[1]);
    ASSERT_EQ(::write(writer.number(), "passphrase\n", 11), 11);
  }
  options_.passphrase_file = "/dev/fd/" + std::to_string(reader.number());
  EXPECT_EQ(TextOf(*Get()), "passphrase");
}

TEST_F(SecretsTest, MayBeAKeyInTheEnvironment) {
  SetVariable("CKPTFS_KEY", kDigits);
  const auto secret = Get();
  EXPECT_EQ(secret->kind, Secret::Kind::kKey);
  EXPECT_EQ(TextOf(*secret), FromHex(kDigits));
  EXPECT_EQ(secret->origin, "CKPTFS_KEY");
}

TEST_F(SecretsTest, MayBeAPassphraseInTheEnvironment) {
  SetVariable("CKPTFS_PASSPHRASE", "passphrase");
  const auto secret = Get();
  EXPECT_EQ(secret->kind, Secret::Kind::kPassphrase);
  EXPECT_EQ(TextOf(*secret), "passphrase");
  EXPECT_EQ(secret->origin, "CKPTFS_PASSPHRASE");
}

TEST_F(SecretsTest, AreNoneIfTheEnvironmentHasEmptyOnes) {
  SetVariable("CKPTFS_KEY", "");
  SetVariable("CKPTFS_PASSPHRASE", "");
  EXPECT_EQ(Get(), nullptr);
}

TEST_F(SecretsTest, AreWipedOutOfTheEnvironment) {
  SetVariable("CKPTFS_PASSPHRASE", "passphrase");
  const char* const value = ::getenv("CKPTFS_PASSPHRASE");
  const Secrets secrets(options_);
  EXPECT_EQ(std::string_view(value, 10), std::string_view("\0\0\0\0\0\0\0\0\0\0", 10));
  EXPECT_EQ(::getenv("CKPTFS_PASSPHRASE"), nullptr);
}

TEST_F(SecretsTest, OfAnOptionGoBeforeThoseOfTheEnvironment) {
  SetVariable("CKPTFS_KEY", "not even a key");
  SetVariable("CKPTFS_PASSPHRASE", "other");
  options_.passphrase_file = File("passphrase");
  EXPECT_EQ(TextOf(*Get()), "passphrase");
  EXPECT_EQ(::getenv("CKPTFS_KEY"), nullptr);
  EXPECT_EQ(::getenv("CKPTFS_PASSPHRASE"), nullptr);
}

TEST_F(SecretsTest, AreUnneededUntilTheyAreAskedFor) {
  options_.key_file = File(FromHex(kDigits));
  Secrets secrets(options_);
  EXPECT_EQ(secrets.UnneededOption(), "key_file");
  secrets.Get(false);
  EXPECT_EQ(secrets.UnneededOption(), "");
}

TEST_F(SecretsTest, OfTheEnvironmentMayBeUnneeded) {
  SetVariable("CKPTFS_PASSPHRASE", "passphrase");
  EXPECT_EQ(Secrets(options_).UnneededOption(), "");
}

TEST_F(SecretsTest, AreNotReadFromAKeyFileThatIsTooShort) {
  options_.key_file = File(std::string(31, 'k'));
  EXPECT_THAT([&] { Get(); },
              Fails(EBADMSG, "key_file " + options_.key_file +
                                 ": invalid key size (found 31 bytes, expected 32)"));
}

TEST_F(SecretsTest, AreNotReadFromAKeyFileThatIsTooLong) {
  options_.key_file = File(std::string(33, 'k'));
  EXPECT_THAT([&] { Get(); },
              Fails(EBADMSG, "key_file " + options_.key_file +
                                 ": invalid key size (found 33 bytes, expected 32)"));
}

TEST_F(SecretsTest, AreNotReadFromAFileThatIsNoSecret) {
  options_.key_file = "/dev/zero";
  EXPECT_THAT([&] { Get(); }, Fails(EFBIG, "key_file /dev/zero: has more than 65536 bytes"));
}

TEST_F(SecretsTest, AreNotReadFromAFileThatDoesNotExist) {
  options_.key_file = "/nowhere/key";
  EXPECT_THAT([&] { Get(); },
              Fails(ENOENT, "key_file /nowhere/key: cannot open it: No such file or directory"));
}

TEST_F(SecretsTest, AreNotReadFromADirectory) {
  options_.passphrase_file = "/";
  EXPECT_THAT([&] { Get(); }, Fails(EISDIR, "passphrase_file /: cannot read it: Is a directory"));
}

TEST_F(SecretsTest, AreNoEmptyPassphrases) {
  options_.passphrase_file = File("\r\n");
  EXPECT_THAT([&] { Get(); }, Fails(EBADMSG, "passphrase_file " + options_.passphrase_file +
                                                 ": the passphrase is empty"));
}

TEST_F(SecretsTest, AreNoPassphrasesThatAreTooLong) {
  options_.passphrase_file = File(std::string(65537, 'p'));
  EXPECT_THAT([&] { Get(); }, Fails(EFBIG, "passphrase_file " + options_.passphrase_file +
                                               ": has more than 65536 bytes"));
}

TEST_F(SecretsTest, AreNotTwoInTheEnvironment) {
  SetVariable("CKPTFS_KEY", kDigits);
  SetVariable("CKPTFS_PASSPHRASE", "passphrase");
  EXPECT_THAT([&] { Get(); },
              Fails(EINVAL, "CKPTFS_KEY and CKPTFS_PASSPHRASE are mutually exclusive"));
}

TEST_F(SecretsTest, AreNoKeysWithADigitTooFew) {
  SetVariable("CKPTFS_KEY", std::string(kDigits).substr(1));
  EXPECT_THAT([&] { Get(); },
              Fails(EINVAL, "CKPTFS_KEY: needs 64 hexadecimal digits, got 63 characters"));
}

TEST_F(SecretsTest, AreNoKeysWithALetterThatIsNoDigit) {
  SetVariable("CKPTFS_KEY", std::string(kDigits).replace(9, 1, "g"));
  EXPECT_THAT(
      [&] { Get(); },
      Fails(EINVAL, "CKPTFS_KEY: needs 64 hexadecimal digits, but character 10 is not one"));
}

}  // namespace
}  // namespace ckptfs
