#include "parser/base/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/support/encrypter.h"

namespace ckptfs {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

// The flags of the mapping with `address` in /proc/self/smaps: "VmFlags: rd wr lo dd".
std::string FlagsOf(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_it = begin <= wanted && wanted < end;
    }
    if (is_it && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST(Secret, IsZeroAtFirst) {
  const SecretBytes secret(100);
  EXPECT_THAT(secret.bytes(), SizeIs(100));
  EXPECT_THAT(secret.bytes(), Each(std::byte{0}));
}

TEST(Secret, IsCopied) { EXPECT_EQ(ToHex(SecretOf("key")->bytes()), "6b6579"); }

TEST(Secret, MayBeEmpty) { EXPECT_THAT(SecretBytes(0).bytes(), SizeIs(0)); }

TEST(Secret, IsLeftOutOfCoreDumps) {
  const SecretBytes secret(32);
  EXPECT_THAT(FlagsOf(secret.bytes().data()), HasSubstr(" dd "));
}

TEST(Secret, IsLockedInMemory) {
  alignas(4096) static std::array<char, 4096> page;
  ASSERT_EQ(::mlock(page.data(), page.size()), 0);
  if (FlagsOf(page.data()).find(" lo ") == std::string::npos) {
    GTEST_SKIP() << "this is not possible here: a sanitizer locks nothing";
  }
  ::munlock(page.data(), page.size());
  const SecretBytes secret(32);
  EXPECT_THAT(FlagsOf(secret.bytes().data()), HasSubstr(" lo "));
}

}  // namespace
}  // namespace ckptfs
