#include "tools/ckpt/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>  // mkostemp
#include <stdlib.h>  // mkdtemp
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::ckpt {
namespace {

std::filesystem::path FolderOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

mode_t Umask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

std::string FdPath(const Fd& file) { return fmt::format("/proc/self/fd/{}", file.number()); }

bool IsZeros(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.front() != std::byte{0}) return bytes.empty();
  return std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

[[noreturn]] void FailExists(const std::filesystem::path& path) {
  Fail(EEXIST, "{}: file exists; -f replaces it", path.string());
}

}  // namespace

void CheckOutput(const std::filesystem::path& path, Existing existing) {
  struct ::stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    FailErrno("{}", path.string());
  }
  if (existing == Existing::kKeep) FailExists(path);
  const bool is_link = S_ISLNK(status.st_mode);
  if (is_link && ::stat(path.c_str(), &status) != 0) return;  // It leads nowhere.
  if (!is_link && S_ISDIR(status.st_mode)) Fail(EISDIR, "{}: is a directory", path.string());
  if (!S_ISREG(status.st_mode)) Fail(EEXIST, "{}: is not a regular file", path.string());
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  constexpr mode_t kMode = 0666;  // As the umask allows.
  const std::string folder = FolderOf(path_).string();
  file_ = Fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
  if (file_.number() >= 0) return;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) FailErrno("{}", path_.string());
  temporary_ = fmt::format("{}/.ckpt.XXXXXX", folder);
  file_ = Fd(::mkostemp(temporary_.data(), O_CLOEXEC));
  if (file_.number() < 0) {
    temporary_.clear();
    FailErrno("{}", path_.string());
  }
  if (::fchmod(file_.number(), kMode & ~Umask()) != 0) FailErrno("{}", path_.string());
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::Resize(uint64_t size) const {
  if (::ftruncate(file_.number(), static_cast<off_t>(size)) != 0) FailErrno("{}", path_.string());
}

void OutputFile::Write(uint64_t offset, std::span<const std::byte> bytes) const {
  if (IsZeros(bytes)) return;
  const auto error = WriteFully(file_.number(), offset, bytes);
  if (error) throw WithContext(path_.string(), *error);
}

Fd OutputFile::Reopen() const {
  Fd file(::open(FdPath(file_).c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) FailErrno("{}", path_.string());
  return file;
}

void OutputFile::Sync() const {
  if (::fsync(file_.number()) != 0) FailErrno("{}", path_.string());
  ::posix_fadvise(file_.number(), 0, 0, POSIX_FADV_DONTNEED);
}

void OutputFile::RemoveExisting() const {
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) FailErrno("{}", path_.string());
}

void OutputFile::Commit(Existing existing) {
  // Of files without a name, link(2) never replaces one that exists.
  const bool is_named = !temporary_.empty();
  if (existing == Existing::kKeep) {
    const std::string from = is_named ? temporary_ : FdPath(file_);
    if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path_.c_str(),
                 is_named ? 0 : AT_SYMLINK_FOLLOW) != 0) {
      if (errno == EEXIST) FailExists(path_);
      FailErrno("{}", path_.string());
    }
    return;
  }
  while (temporary_.empty()) {
    const std::string name =
        fmt::format("{}/.ckpt.{:08x}", FolderOf(path_).string(), std::random_device()());
    if (::linkat(AT_FDCWD, FdPath(file_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
    } else if (errno != EEXIST) {
      FailErrno("{}", path_.string());
    }
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) FailErrno("{}", path_.string());
  temporary_.clear();
}

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
  constexpr mode_t kMode = 0777;
  if (::chmod(temporary_.c_str(), kMode & ~Umask()) != 0) FailErrno("{}", path_.string());
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

CancelOnSignal::CancelOnSignal() {
  pending_signal = 0;
  struct ::sigaction action = {};
  action.sa_handler = Keep;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // The second one ends the process at once.
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before_[i]);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    // Signals that nohup ignores stay ignored.
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

CancelOnSignal::~CancelOnSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  const int signal = pending_signal;
  if (signal != 0) ::raise(signal);
}

void CancelOnSignal::Check() {
  if (pending_signal != 0) Fail(EINTR, "interrupted");
}

}  // namespace ckptfs::ckpt
