#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "parser/error.h"
#include "parser/scheme.h"
#include "tests/support/sources.h"

namespace ckptfs {

extern const Scheme file_scheme;

namespace {

using testing::AllOf;
using testing::Property;
using testing::StrEq;
using testing::Throws;

// A call that throws an Error of that code and message.
auto Fails(int code, const char* message) {
  return Throws<Error>(AllOf(Property(&Error::code, code), Property(&Error::what, StrEq(message))));
}

auto IsStale() { return Fails(ESTALE, "the file has changed since it was opened"); }

// Root may read all files: as long as this lives, the process is another user.
class NotRoot {
 public:
  NotRoot() : was_root_(::geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (was_root_) {
      EXPECT_EQ(::seteuid(kNobody), 0);
    }
  }
  NotRoot(const NotRoot&) = delete;
  NotRoot& operator=(const NotRoot&) = delete;
  ~NotRoot() {
    if (was_root_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }

 private:
  const bool was_root_;
};

class FileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static void Write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  ByteSourcePtr Open() const { return file_scheme.open(path_); }

  const std::filesystem::path folder_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() +
      std::to_string(::getpid());
  const std::filesystem::path path_ = folder_ / "file";
};

TEST_F(FileTest, ReadsAnyRange) {
  Write(path_, "0123456789");
  const auto file = Open();
  EXPECT_EQ(file->name(), path_);
  EXPECT_EQ(file->size(), 10U);
  EXPECT_EQ(ReadString(*file, 0, 10), "0123456789");
  EXPECT_EQ(ReadString(*file, 3, 4), "3456");
  EXPECT_EQ(ReadString(*file, 10, 0), "");
}

TEST_F(FileTest, OpensFileUris) {
  Write(path_, "0123456789");
  EXPECT_EQ(ReadString(*file_scheme.open("file://" + path_.string()), 3, 4), "3456");
}

TEST_F(FileTest, ReadsPieces) {
  Write(path_, "0123456789");
  std::string text(6, '\0');
  Open()->ReadPiecesAt(1, 3, 2, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "124578");
}

TEST_F(FileTest, TellsWhenTheFileWasModified) {
  Write(path_, "0");
  const timespec times[] = {{.tv_sec = 1, .tv_nsec = 2}, {.tv_sec = 12345, .tv_nsec = 67890}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  const timespec modified = Open()->modified();
  EXPECT_EQ(modified.tv_sec, 12345);
  EXPECT_EQ(modified.tv_nsec, 67890);
}

TEST_F(FileTest, OpensAnEmptyFile) {
  Write(path_, "");
  EXPECT_EQ(Open()->size(), 0U);
}

TEST_F(FileTest, IsStaleOnceItIsTruncated) {
  Write(path_, "0123456789");
  const auto file = Open();
  std::filesystem::resize_file(path_, 5);
  EXPECT_THAT([&] { ReadString(*file, 0, 10); }, IsStale());
  EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
}

TEST_F(FileTest, IsStaleOnceItIsAppendedTo) {
  Write(path_, "0123456789");
  const auto file = Open();
  std::filesystem::resize_file(path_, 11);
  EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
}

TEST_F(FileTest, IsStaleOnceItIsWrittenInPlace) {
  Write(path_, "0123456789");
  const auto before = std::filesystem::last_write_time(path_);
  const auto file = Open();
  Write(path_, "9876543210");
  std::filesystem::last_write_time(path_, before + std::chrono::nanoseconds(1000));
  EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
}

TEST_F(FileTest, IsStaleForReadsOfPiecesToo) {
  Write(path_, "0123456789");
  const auto file = Open();
  std::filesystem::resize_file(path_, 11);
  std::string text(6, '\0');
  EXPECT_THAT([&] { file->ReadPiecesAt(1, 3, 2, std::as_writable_bytes(std::span(text))); },
              IsStale());
}

TEST_F(FileTest, IsServedAsItWasIfReplaced) {
  Write(path_, "old");
  const auto file = Open();
  Write(folder_ / "new", "newer");
  std::filesystem::rename(folder_ / "new", path_);
  EXPECT_EQ(ReadString(*file, 0, 3), "old");
}

TEST_F(FileTest, IsServedAsItWasIfRemoved) {
  Write(path_, "old");
  const auto file = Open();
  std::filesystem::remove(path_);
  EXPECT_EQ(ReadString(*file, 0, 3), "old");
}

TEST_F(FileTest, TellsThatThereIsNoFile) {
  EXPECT_THAT([&] { Open(); }, Fails(ENOENT, "cannot open: No such file or directory"));
}

TEST_F(FileTest, TellsThatItMayNotReadTheFile) {
  Write(path_, "0");
  ASSERT_EQ(::chmod(path_.c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  const NotRoot not_root;
  EXPECT_THAT([&] { Open(); }, Fails(EACCES, "cannot open: Permission denied"));
}

TEST_F(FileTest, RefusesADirectory) {
  EXPECT_THAT([&] { file_scheme.open(folder_); }, Fails(EISDIR, "is a directory"));
}

TEST_F(FileTest, RefusesAPipeWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT([&] { Open(); }, Fails(EINVAL, "not a regular file"));
}

TEST_F(FileTest, RefusesADevice) {
  EXPECT_THAT([&] { file_scheme.open("/dev/null"); }, Fails(EINVAL, "not a regular file"));
}

}  // namespace
}  // namespace ckptfs
