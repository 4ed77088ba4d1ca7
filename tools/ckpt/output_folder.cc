#include "tools/ckpt/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>  // mkdtemp
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::ckpt {
namespace {

std::atomic<int> pending_signal = 0;

void Keep(int signal) { pending_signal = signal; }

}  // namespace

OutputFolder::OutputFolder(std::filesystem::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "arrays/".
  temporary_ = (path_.parent_path() / ".ckpt.XXXXXX").string();
  if (::mkdtemp(temporary_.data()) == nullptr) {
    temporary_.clear();
    FailErrno("{}", path_.string());
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  constexpr mode_t kMode = 0777;
  if (::chmod(temporary_.c_str(), kMode & ~mask) != 0) FailErrno("{}", path_.string());
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void OutputFolder::AddFolderOf(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) Fail(error.value(), "{}: {}", path.parent_path().string(), ErrnoText(error.value()));
}

void OutputFolder::AddLink(const std::filesystem::path& file, const std::filesystem::path& link) {
  AddFolderOf(link);
  if (::link(file.c_str(), link.c_str()) != 0) FailErrno("{}", link.string());
}

void OutputFolder::Commit(Existing existing) {
  const unsigned flags = existing == Existing::kKeep ? RENAME_NOREPLACE : 0;
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags) == 0) {
    temporary_.clear();
    return;
  }
  if (existing == Existing::kKeep || errno != ENOTEMPTY) FailErrno("{}", path_.string());
  // The old folder takes the temporary name, and is deleted with it.
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    FailErrno("{}", path_.string());
  }
}

Interruption::Interruption() {
  pending_signal = 0;
  struct ::sigaction action = {};
  action.sa_handler = Keep;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // The second one ends the process at once.
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before_[i]);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    // What nohup ignores stays ignored.
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

Interruption::~Interruption() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  const int signal = pending_signal;
  if (signal != 0) ::raise(signal);
}

void Interruption::Check() {
  if (pending_signal != 0) Fail(EINTR, "interrupted");
}

}  // namespace ckptfs::ckpt
