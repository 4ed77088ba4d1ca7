#include "fs/checks.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

mode_t MaskOf(mode_t permissions, gid_t group, gid_t group_of_mount) {
  Readers readers;
  readers.Add(permissions, group);
  return readers.MaskFor(group_of_mount);
}

TEST(Readers, AreAllWhereNoFileIsLocal) { EXPECT_EQ(Readers().MaskFor(7), 0U); }

TEST(Readers, AreThoseOfTheFile) {
  EXPECT_EQ(MaskOf(0444, 7, 7), 0U);
  EXPECT_EQ(MaskOf(0440, 7, 7), 07U);
  EXPECT_EQ(MaskOf(0400, 7, 7), 077U);
  EXPECT_EQ(MaskOf(0404, 7, 7), 070U);
}

TEST(Readers, AreNotTheMembersOfAnotherGroup) {
  EXPECT_EQ(MaskOf(0440, 7, 8), 077U);
  EXPECT_EQ(MaskOf(0444, 7, 8), 0U);
}

TEST(Readers, AlwaysIncludeTheOwner) { EXPECT_EQ(MaskOf(0000, 7, 7), 077U); }

TEST(Readers, AreTheUsersWithPermissionForAllFiles) {
  Readers readers;
  readers.Add(0444, 7);
  readers.Add(0440, 7);
  EXPECT_EQ(readers.MaskFor(7), 07U);
  readers.Add(0440, 8);
  EXPECT_EQ(readers.MaskFor(7), 077U);
}

}  // namespace
}  // namespace ckptfs
