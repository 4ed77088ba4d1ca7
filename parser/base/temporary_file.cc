#include "parser/base/temporary_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace ckptfs {

namespace {

std::string Directory() {
  const char* const variable = std::getenv("TMPDIR");
  return variable != nullptr && *variable != '\0' ? variable : "/var/tmp";
}

}  // namespace

Fd MakeTemporaryFile() {
  const std::string directory = Directory();
  Fd unnamed(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (unnamed.number() >= 0) return unnamed;
  // The errors of kernels and file systems without O_TMPFILE.
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
    std::string path = directory + "/ckptfs-XXXXXX";
    Fd named(::mkostemp(path.data(), O_CLOEXEC));
    if (named.number() >= 0 && ::unlink(path.c_str()) == 0) return named;
  }
  return Fd();
}

uint64_t FreeForTemporaryFiles() {
  struct statvfs disk = {};
  if (::statvfs(Directory().c_str(), &disk) != 0) return 0;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

}  // namespace ckptfs
