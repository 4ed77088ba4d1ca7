// Files that commands write: whole, or not at all.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "parser/base/fd.h"

namespace ckptfs::ckpt {

// Whether an existing file is replaced.
enum class Existing : uint8_t { kKeep, kReplace };

// Throws Error(EEXIST) if `path` exists and shall be kept, and Error if it would be replaced and is no
// regular file, such as /dev/null, nor a link to one.
void CheckOutput(const std::filesystem::path& path, Existing existing);

// A file that gets its name once it is complete. Until then it has none, so that nothing is left if the
// program ends; where the file system cannot do that, it has a temporary name in the same directory.
class OutputFile {
 public:
  // Throws Error.
  explicit OutputFile(std::filesystem::path path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // Sets the length of the file. What is not written is zeros, and takes no room. Throws Error.
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

}  // namespace ckptfs::ckpt
