#include "parser/io/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/memory_folder.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::StrEq;
using testing::ThrowsMessage;

TEST(PlainName, IsThatOfAFileInAFolder) {
  EXPECT_TRUE(IsPlainName("model-00001-of-00002.safetensors"));
  EXPECT_TRUE(IsPlainName("..."));
  EXPECT_TRUE(IsPlainName(".hidden"));
  EXPECT_FALSE(IsPlainName(""));
  EXPECT_FALSE(IsPlainName("."));
  EXPECT_FALSE(IsPlainName(".."));
  EXPECT_FALSE(IsPlainName("a/b"));
  EXPECT_FALSE(IsPlainName("/a"));
  EXPECT_FALSE(IsPlainName("a\\b"));
  EXPECT_FALSE(IsPlainName(std::string_view("a\0b", 3)));
}

TEST(Folder, LocalFilesMayHaveBackslashes) {
  EXPECT_TRUE(IsLocalName("a\\b"));
  EXPECT_TRUE(IsLocalName("..."));
  EXPECT_FALSE(IsLocalName(""));
  EXPECT_FALSE(IsLocalName(".."));
  EXPECT_FALSE(IsLocalName("a/b"));
  EXPECT_FALSE(IsLocalName(std::string_view("a\0b", 3)));
}

TEST(Listed, ShowsTheFirstNamesOfMany) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g"};
  EXPECT_EQ(Listed(names), "'a', 'b', 'c', 'd', 'e' and 2 more");
}

// A folder of files "0", "1", ... that contain their names; "7" is missing. Waits when a file is
// opened until `together` are.
class FarFolder final : public Folder {
 public:
  explicit FarFolder(size_t together) : together_(together) {}

  std::string name() const override { return "far"; }
  bool is_remote() const override { return true; }
  std::vector<std::string> List() const override { Fail(ENOTSUP, "cannot list"); }
  std::vector<std::string> ListFolders() const override { return {}; }
  FolderPtr OpenFolder(const std::string& /*name*/) const override { return nullptr; }
  std::optional<EntryInfo> Find(const std::string& /*name*/) const override { return {}; }

  ByteSourcePtr Open(const std::string& name) const override {
    for (++opening_; opening_ < together_;) std::this_thread::yield();
    if (name == "7") Fail(ENOENT, "no such file");
    if (name == "lack") Fail(ENOMEM, "no memory");
    return std::make_shared<MemorySource>(name);
  }

 private:
  const size_t together_;
  mutable std::atomic<size_t> opening_ = 0;
};

TEST(OpenFiles, OpensEightAtOnceOfAFarFolder) {
  const FarFolder folder(8);
  const std::vector<std::string> names = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  const std::vector<OpenedFile> files = OpenFiles(folder, names);
  ASSERT_EQ(files.size(), 10U);
  EXPECT_EQ(ReadString(*files[6].file, 0, 1), "6");
  EXPECT_EQ(files[7].file, nullptr);
  EXPECT_THAT(files[7].error->what(), StrEq("no such file"));
  EXPECT_EQ(ReadString(*files[9].file, 0, 1), "9");
}

TEST(OpenFiles, NamesTheFileThatExceedsMemory) {
  const std::vector<std::string> names = {"7", "lack"};
  EXPECT_THAT([&] { OpenFiles(FarFolder(0), names); }, ThrowsMessage<Error>("lack: no memory"));
}

TEST(OpenFiles, ThrowsTheFirstErrorIfAllAreWanted) {
  const std::vector<std::string> names = {"7", "0"};
  EXPECT_THAT([&] { OpenAllFiles(FarFolder(0), names); }, ThrowsMessage<Error>("no such file"));
}

}  // namespace
}  // namespace ckptfs
