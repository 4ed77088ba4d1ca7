#include "fs/operands.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "parser/base/error.h"
#include "parser/open.h"

namespace ckptfs {
namespace {

// What is at `path`; not found if that cannot be learned.
std::filesystem::file_type TypeAt(const std::string& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type();
}

bool IsEmpty(const std::string& directory, bool expected) {
  std::error_code error;
  return std::filesystem::is_empty(directory, error) == expected && !error;
}

bool AreSwapped(const std::string& source, const std::string& mountpoint) {
  using Type = std::filesystem::file_type;
  if (!SchemeNameOf(source).empty()) return false;
  const Type first = TypeAt(source);
  const Type last = TypeAt(mountpoint);
  if (!SchemeNameOf(mountpoint).empty() || last == Type::regular) {
    return first == Type::directory || first == Type::not_found;
  }
  // An empty directory is no checkpoint, and one with files is no mount point.
  return first == Type::directory && last == Type::directory && IsEmpty(source, true) &&
         IsEmpty(mountpoint, false);
}

}  // namespace

void CheckOrder(const std::string& source, const std::string& mountpoint) {
  if (AreSwapped(source, mountpoint)) {
    Fail(EINVAL,
         "arguments are swapped: the checkpoint is the first one "
         "(usage: ckptfs [OPTION]... CHECKPOINT MOUNTPOINT)");
  }
}

}  // namespace ckptfs
