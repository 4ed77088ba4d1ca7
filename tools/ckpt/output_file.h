// Files and folders that commands write: whole, or not at all.

#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "parser/base/fd.h"

namespace ckptfs::ckpt {

// Whether an existing file is replaced.
enum class Existing : uint8_t { kKeep, kReplace };

// Throws Error(EEXIST) if `path` exists and shall be kept, and Error if it would be replaced and is
// no regular file, such as /dev/null, nor a link to one.
void CheckOutput(const std::filesystem::path& path, Existing existing);

// A file that gets its name once it is complete. Until then it has none, so that nothing is left if
// the program ends; where the file system cannot do that, it has a temporary name in the same
// directory.
class OutputFile {
 public:
  // Throws Error.
  explicit OutputFile(std::filesystem::path path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // Sets the length of the file. Bytes that are not written are zeros and take no space. Throws
  // Error.
  void Resize(uint64_t size) const;

  // Zeros are not written. Any thread may call this. Throws Error.
  void Write(uint64_t offset, std::span<const std::byte> bytes) const;

  // Opens the file for reading. Throws Error.
  Fd Reopen() const;

  // Makes what has been written durable, and forgets the copy of it in memory. Throws Error.
  void Sync() const;

  // Deletes the file that has the name, if there is one. Throws Error.
  void RemoveExisting() const;

  // Gives the file its name. Throws Error: EEXIST if there is such a file, which is kept.
  void Commit(Existing existing);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string temporary_;  // Its temporary path; empty if it has none.
  Fd file_;
};

// A folder that is written beside its path, under a temporary name, and renamed once it is
// complete. It is deleted if that does not happen.
class OutputFolder {
 public:
  // Throws Error.
  explicit OutputFolder(std::filesystem::path path);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  // Where files go until Commit.
  const std::string& temporary() const { return temporary_; }

  // Creates the folder for a file or link in it, unless it exists. Throws Error.
  static void AddFolderOf(const std::filesystem::path& path);

  // Adds a hard link to a file. Throws Error.
  static void AddLink(const std::filesystem::path& file, const std::filesystem::path& link);

  // Gives the folder its name. Throws Error: EEXIST if there is something of that name, which is
  // kept, or ENOTEMPTY if that shall be replaced and is no empty folder.
  void Commit(Existing existing);

 private:
  std::filesystem::path path_;
  std::string temporary_;  // Empty once it is renamed.
};

// While it exists, SIGINT, SIGTERM and SIGHUP do not end the process, but the work: see Check. Then
// the destructor ends the process with the signal. One at a time.
class CancelOnSignal {
 public:
  CancelOnSignal();
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;
  ~CancelOnSignal();

  // Throws Error(EINTR) after such a signal. Any thread may call this.
  static void Check();

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT, SIGTERM};

  std::array<struct ::sigaction, kSignals.size()> before_ = {};
};

}  // namespace ckptfs::ckpt
