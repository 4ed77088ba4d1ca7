#include "parser/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace ckptfs {

Fd MakeTemporaryFile() {
  const char* const variable = std::getenv("TMPDIR");
  const std::string directory = variable != nullptr && *variable != '\0' ? variable : "/var/tmp";
  Fd unnamed(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (unnamed.number() >= 0) return unnamed;
  // What kernels and file systems say that know no unnamed files.
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
    std::string path = directory + "/ckptfs-XXXXXX";
    Fd named(::mkostemp(path.data(), O_CLOEXEC));
    if (named.number() >= 0 && ::unlink(path.c_str()) == 0) return named;
  }
  return Fd();
}

}  // namespace ckptfs
