#include "parser/source/hub/local_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"

namespace ckptfs::hub {
namespace {

bool IsTrusted(const struct stat& st, LinkPolicy policy) {
  if (policy == LinkPolicy::kAll) return true;
  return (st.st_uid == ::geteuid() || st.st_uid == 0) && (st.st_mode & S_IWOTH) == 0;
}

// A link could lead anywhere.
Fd OpenIn(const Fd& directory, const std::string& name) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
  return Fd(::openat(directory.number(), name.c_str(), kFlags));
}

bool IsSame(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

class Blob final : public RemoteObject {
 public:
  Blob(std::shared_ptr<const Fd> directory, std::string file_name, const struct stat& st,
       RemoteObjectPtr remote)
      : directory_(std::move(directory)),
        file_name_(std::move(file_name)),
        pinned_(st),
        remote_(std::move(remote)) {}

  std::string name() const override { return remote_->name(); }
  uint64_t size() const override { return remote_->size(); }
  timespec modified() const override { return remote_->modified(); }

  std::optional<std::array<std::byte, 32>> sha256() const override { return remote_->sha256(); }

  // None, so that no copy of the blob is cached on the disk.
  std::string identity() const override { return {}; }

  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& stop) const override {
    const uint64_t done = Read(offset, length, delivery, stop);
    if (done < length) remote_->Fetch(offset + done, length - done, delivery, stop);
  }

 private:
  // Delivers as many bytes as can be read, and returns their number.
  uint64_t Read(uint64_t offset, uint64_t length, Delivery& delivery,
                const std::stop_token& stop) const {
    constexpr uint64_t kMostAtOnce = 1U << 20U;
    const Fd file = OpenIn(*directory_, file_name_);
    uint64_t done = 0;
    while (done < length && !stop.stop_requested()) {
      const std::span<std::byte> room = delivery.room();
      const auto count =
          static_cast<size_t>(std::min<uint64_t>({room.size(), length - done, kMostAtOnce}));
      const ReadResult read = ReadFully(file.number(), offset + done, room.first(count));
      // After the bytes were read, so that they are those of the pinned file.
      if (read.count != count || !IsPinned(file)) break;
      delivery.Arrived(count);
      done += count;
    }
    return done;
  }

  bool IsPinned(const Fd& file) const {
    struct stat st = {};
    return ::fstat(file.number(), &st) == 0 && st.st_dev == pinned_.st_dev &&
           st.st_ino == pinned_.st_ino && st.st_size == pinned_.st_size &&
           IsSame(st.st_mtim, pinned_.st_mtim);
  }

  const std::shared_ptr<const Fd> directory_;
  const std::string file_name_;
  const struct stat pinned_;
  const RemoteObjectPtr remote_;
};

[[noreturn]] void FailMissing(const std::string& what, const std::string& directory) {
  Fail(ENOENT, "{} is not in the local cache {}, and HF_HUB_OFFLINE is set", what,
       Quoted(directory));
}

}  // namespace

BlobCache::BlobCache(const std::string& directory, const RepositoryId& repository,
                     LinkPolicy policy)
    : policy_(policy) {
  if (directory.empty()) return;
  const std::string path = fmt::format("{}/{}/blobs", directory, repository.CacheName());
  auto blobs = std::make_shared<const Fd>(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat st = {};
  if (blobs->number() < 0 || ::fstat(blobs->number(), &st) < 0) return;
  if (IsTrusted(st, policy)) blobs_ = std::move(blobs);
}

RemoteObjectPtr BlobCache::Find(const File& file, RemoteObjectPtr remote) const {
  if (blobs_ == nullptr) return remote;
  std::string name = file.id.Hex();
  const Fd blob = OpenIn(*blobs_, name);
  struct stat st = {};
  if (blob.number() < 0 || ::fstat(blob.number(), &st) < 0) return remote;
  if (!S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) != file.size ||
      !IsTrusted(st, policy_)) {
    return remote;
  }
  return std::make_shared<Blob>(blobs_, std::move(name), st, std::move(remote));
}

std::string FindSnapshot(const std::string& directory, const RepositoryId& repository) {
  const std::string folder = fmt::format("{}/{}", directory, repository.CacheName());
  const std::string revision = repository.revision_or_main();
  std::string commit = revision;
  if (!IsCommit(revision)) {
    const auto text = ReadOptionalFile(fmt::format("{}/refs/{}", folder, revision), "reference");
    commit = Trim(text.value_or(""));
    if (!IsCommit(commit)) FailMissing(fmt::format("revision {}", Quoted(revision)), directory);
  }
  std::string snapshot = fmt::format("{}/snapshots/{}", folder, commit);
  if (::access(snapshot.c_str(), F_OK) != 0) FailMissing("commit " + commit, directory);
  return snapshot;
}

}  // namespace ckptfs::hub
