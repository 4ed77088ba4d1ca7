// Folders that commands write: whole, or not at all.

#pragma once

#include <array>
#include <csignal>
#include <filesystem>
#include <string>

#include "tools/ckpt/output_file.h"

namespace ckptfs::ckpt {

// A folder that is written beside its path, under a temporary name, and renamed once it is complete. It is
// deleted if that does not happen.
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

  // Gives the folder its name. Throws Error: EEXIST if there is something of that name, which is kept,
  // or ENOTEMPTY if that shall be replaced and is no empty folder.
  void Commit(Existing existing);

 private:
  std::filesystem::path path_;
  std::string temporary_;  // Empty once it is renamed.
};

// While it exists, SIGINT, SIGTERM and SIGHUP do not end the process, but the work: see Check. Then the
// destructor ends the process with the signal. One at a time.
class Interruption {
 public:
  Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  // Throws Error(EINTR) after such a signal. Any thread may call this.
  static void Check();

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT, SIGTERM};

  std::array<struct ::sigaction, kSignals.size()> before_ = {};
};

}  // namespace ckptfs::ckpt
