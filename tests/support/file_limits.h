// Makes temporary files fail, to test what works without them.

#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace ckptfs {

// Sets the directory of temporary files while it exists.
class TemporaryFilesIn {
 public:
  explicit TemporaryFilesIn(const std::string& directory) {
    if (const char* const before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", directory.c_str(), 1);
  }
  TemporaryFilesIn(const TemporaryFilesIn&) = delete;
  TemporaryFilesIn& operator=(const TemporaryFilesIn&) = delete;
  ~TemporaryFilesIn() {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

// Limits the size of files to `size` bytes while it exists.
class FilesUpTo {
 public:
  explicit FilesUpTo(rlim_t size) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {.rlim_cur = size, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FilesUpTo(const FilesUpTo&) = delete;
  FilesUpTo& operator=(const FilesUpTo&) = delete;
  ~FilesUpTo() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*const handler_)(int);
  rlimit before_ = {};
};

}  // namespace ckptfs
