#include "parser/layer/disk_cache/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;

// O_NONBLOCK: a pipe in place of the file must not block the open.
constexpr int kOpenFile = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;

constexpr size_t kHashDigits = 64;

std::string NameOf(const SegmentId& id) { return fmt::format("{}-{}", Hex(id.object), id.number); }

std::string Below(std::string_view name) { return std::string(name.substr(0, 2)); }

// Whether `name` is that of a segment in the directory `below`. Other files are never removed.
bool IsSegmentName(std::string_view name, std::string_view below) {
  return name.size() > kHashDigits + 1 && name.starts_with(below) && name[kHashDigits] == '-' &&
         name.find_first_not_of(kHexDigits) == kHashDigits &&
         name.find_first_not_of(kHexDigits.substr(0, 10), kHashDigits + 1) ==
             std::string_view::npos;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Listing = std::unique_ptr<DIR, CloseDirectory>;

// Whether the access control list `name` of `file` grants write permission to further users or
// groups, which the mode does not show. The kernel's format: a version, then entries.
bool HasOtherWriters(const Fd& file, const char* name) {
  struct Entry {
    uint16_t tag;
    uint16_t rights;
    uint32_t id;
  };
  constexpr uint16_t kUser = 0x02;
  constexpr uint16_t kGroup = 0x08;
  constexpr uint16_t kMask = 0x10;  // Permissions outside it are not granted.
  constexpr uint16_t kWrite = 2;
  std::array<std::byte, 4096> list = {};
  const ssize_t size = ::fgetxattr(file.number(), name, list.data(), list.size());
  if (size < 0) return errno != ENODATA && errno != ENOTSUP;
  uint16_t given = 0;
  uint16_t mask = kWrite;
  for (size_t at = sizeof(uint32_t); at + sizeof(Entry) <= static_cast<size_t>(size);
       at += sizeof(Entry)) {
    Entry entry = {};
    std::memcpy(&entry, &list[at], sizeof entry);
    if (entry.tag == kUser || entry.tag == kGroup) given |= entry.rights;
    if (entry.tag == kMask) mask = entry.rights;
  }
  return (given & mask & kWrite) != 0;
}

constexpr const char* kAccessList = "system.posix_acl_access";
constexpr const char* kDefaultList = "system.posix_acl_default";  // For new files in a directory.

}  // namespace

CacheDirectory::CacheDirectory(const std::string& path) : us_(::geteuid()) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    FailErrno("cache directory {}: cannot create it", path);
  }
  // The path of the user may be a symbolic link.
  directory_ = Fd(::open(path.c_str(), kOpenDirectory & ~O_NOFOLLOW));
  struct stat status = {};
  if (directory_.number() < 0 || ::fstat(directory_.number(), &status) != 0) {
    FailErrno("cache directory {}: cannot open it", path);
  }
  if (status.st_uid != us_ && status.st_uid != 0) {
    Fail(EPERM, "cache directory {}: is owned by user {} (expected user {} or root)", path,
         status.st_uid, us_);
  }
  if ((status.st_mode & S_IWOTH) != 0) {
    Fail(EPERM, "cache directory {}: is world-writable (mode {:04o})", path,
         status.st_mode & 07777U);
  }
  if (HasOtherWriters(directory_, kAccessList) || HasOtherWriters(directory_, kDefaultList)) {
    Fail(EPERM, "cache directory {}: its access control list lets other users write", path);
  }
  group_ = status.st_gid;
  mode_ = status.st_mode;
}

std::optional<Segment> CacheDirectory::Open(const SegmentId& id, bool may_make) const {
  const std::string name = NameOf(id);
  const Fd below = OpenBelow(Below(name), may_make);
  if (below.number() < 0) return std::nullopt;
  Existing existing = OpenExisting(below.number(), name, id);
  if (existing.segment || !may_make) return std::move(existing.segment);
  if (!existing.is_missing && !existing.is_invalid) return std::nullopt;
  if (existing.is_invalid && ::unlinkat(below.number(), name.c_str(), 0) != 0 && errno != ENOENT) {
    return std::nullopt;
  }
  Fd made(::openat(below.number(), name.c_str(), kOpenFile | O_RDWR | O_CREAT | O_EXCL,
                   S_IRUSR | S_IWUSR));
  // Another process may have been faster.
  if (made.number() < 0) return OpenExisting(below.number(), name, id).segment;
  Share(made.number(), mode_ & 0666U);
  Segment segment(std::move(made), id, true);
  if (!segment.CheckOrInitialize()) return std::nullopt;
  return segment;
}

CacheDirectory::Existing CacheDirectory::OpenExisting(int below, const std::string& name,
                                                      const SegmentId& id) const {
  bool may_write = true;
  Fd file(::openat(below, name.c_str(), kOpenFile | O_RDWR));
  if (file.number() < 0 && (errno == EACCES || errno == EROFS)) {
    may_write = false;
    file = Fd(::openat(below, name.c_str(), kOpenFile | O_RDONLY));
  }
  if (file.number() < 0) {
    return {.segment = std::nullopt,
            .is_missing = errno == ENOENT,
            .is_invalid = errno == ELOOP || errno == EPERM};
  }
  struct stat status = {};
  // A second name could be in a directory where others may write.
  const bool is_trusted = ::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode) &&
                          status.st_nlink <= 1 && IsTrusted(file, status);
  if (!is_trusted) return {.segment = std::nullopt, .is_invalid = true};
  Segment segment(std::move(file), id, may_write);
  if (!segment.CheckOrInitialize()) return {.segment = std::nullopt, .is_invalid = true};
  return {.segment = std::move(segment)};
}

int64_t CacheDirectory::room() const {
  struct statvfs disk = {};
  if (::fstatvfs(directory_.number(), &disk) != 0) return 0;
  return static_cast<int64_t>(disk.f_bavail * disk.f_frsize) -
         static_cast<int64_t>(disk.f_blocks * disk.f_frsize / 20);
}

// Segments are removed even if the lock is unusable.
std::optional<Fd> CacheDirectory::Lock() const {
  constexpr auto kLongestWait = std::chrono::seconds(10);
  constexpr int kTries = 20;  // It is usually held for some milliseconds.
  Fd lock(::openat(directory_.number(), "lock", kOpenFile | O_RDWR | O_CREAT, S_IRUSR | S_IWUSR));
  if (lock.number() < 0) return lock;
  Share(lock.number(), mode_ & 0666U);
  for (int i = 0; i < kTries; ++i) {
    if (::flock(lock.number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
      busy_since_ = 0;
      return lock;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep since = 0;
  if (busy_since_.compare_exchange_strong(since, now)) since = now;
  if (Clock::duration(now - since) < kLongestWait) return std::nullopt;
  return lock;
}

bool CacheDirectory::Shrink(const std::function<uint64_t(uint64_t used)>& wanted,
                            const Keeps& keeps) const {
  const std::optional<Fd> lock = Lock();
  if (!lock) return false;
  std::vector<Found> segments = List();
  uint64_t used = 0;
  for (const Found& segment : segments) used += segment.size;
  const uint64_t target = wanted(used);
  if (used <= target) return true;
  std::ranges::sort(segments, {}, [](const Found& segment) {
    return std::pair(segment.used.tv_sec, segment.used.tv_nsec);
  });
  for (const Found& segment : segments) {
    if (used <= target) break;
    if (keeps && keeps(std::string_view(segment.name).substr(0, kHashDigits), segment.used)) {
      continue;
    }
    const Fd below = OpenBelow(Below(segment.name), false);
    if (below.number() < 0) continue;
    if (::unlinkat(below.number(), segment.name.c_str(), 0) == 0) used -= segment.size;
  }
  return used <= target;
}

Fd CacheDirectory::OpenBelow(const std::string& name, bool may_make) const {
  const int root = directory_.number();
  if (may_make && ::mkdirat(root, name.c_str(), S_IRWXU) == 0) {
    Fd made(::openat(root, name.c_str(), kOpenDirectory));
    if (made.number() >= 0) Share(made.number(), mode_ & 0777U);
    return made;
  }
  Fd found(::openat(root, name.c_str(), kOpenDirectory));
  struct stat status = {};
  if (found.number() < 0 || ::fstat(found.number(), &status) != 0) return Fd();
  return IsTrusted(found, status) ? std::move(found) : Fd();
}

void CacheDirectory::Share(int made, mode_t mode) const {
  struct stat status = {};
  if (::fstat(made, &status) != 0 || status.st_uid != us_) return;
  // Only users of the directory may have access.
  const bool is_of_group = status.st_gid == group_ || ::fchown(made, ~uid_t{0}, group_) == 0;
  if (!is_of_group) mode &= ~mode_t{S_IRWXG};
  const mode_t inherited = status.st_mode & S_ISGID;
  if ((status.st_mode & 07777U) != (mode | inherited)) ::fchmod(made, mode | inherited);
}

bool CacheDirectory::IsTrusted(const Fd& file, const struct stat& status) const {
  const bool is_shared = (mode_ & S_IWGRP) != 0;
  if ((status.st_mode & S_IWOTH) != 0) return false;
  // No list grants more than the bits of the group.
  if ((status.st_mode & S_IWGRP) != 0 &&
      (!is_shared || status.st_gid != group_ || HasOtherWriters(file, kAccessList))) {
    return false;
  }
  return is_shared || status.st_uid == us_ || status.st_uid == 0;
}

std::vector<CacheDirectory::Found> CacheDirectory::List() const {
  std::vector<Found> segments;
  for (const char high : kHexDigits) {
    for (const char low : kHexDigits) {
      const std::string name = {high, low};
      const Fd below = OpenBelow(name, false);
      if (below.number() < 0) continue;
      const int again = ::fcntl(below.number(), F_DUPFD_CLOEXEC, 0);
      const Listing listing(again < 0 ? nullptr : ::fdopendir(again));
      if (!listing) continue;
      while (const dirent* const entry = ::readdir(listing.get())) {
        struct stat status = {};
        if (!IsSegmentName(entry->d_name, name)) continue;
        if (::fstatat(below.number(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
        segments.push_back({.used = status.st_mtim,
                            .size = static_cast<uint64_t>(status.st_blocks) * 512,
                            .name = entry->d_name});
      }
    }
  }
  return segments;
}

}  // namespace ckptfs
