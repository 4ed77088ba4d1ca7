// The kernel keeps the listings of trees, which never change. A directory of a store is listed once
// each time it is opened.

#include "fs/directory_operations.h"

#include <sys/stat.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fs/namespace.h"
#include "fs/reply.h"
#include "fs/slow_reads.h"
#include "parser/base/mutex.h"

namespace ckptfs {
namespace {

// Adds entries to a reply until it is full. With attributes, the kernel gets a reference to each.
class Listing {
 public:
  Listing(fuse_req_t req, size_t size, bool with_attributes)
      : req_(req),
        files_(FilesOf(req)),
        buffer_(Scratch(size)),
        with_attributes_(with_attributes) {}
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;
  ~Listing() {
    for (const uint64_t number : unanswered_) files_.Forget(number, 1);
  }

  // `next` is the offset of the entry after this one. Returns false if there is no room.
  bool AddEntry(const char* name, uint64_t number, size_t next) {
    if (!Add(name, number, next)) return false;
    if (with_attributes_ && !files_.is_constant()) {
      unanswered_.push_back(number);
      files_.Refer(number);
    }
    return true;
  }

  // The same for "." and "..", to which the kernel takes no reference.
  bool Add(const char* name, uint64_t number, size_t next) {
    return Append(name, EntryOf(MountOf(req_), files_.Find(number), number), next);
  }

  // The same for an entry without an inode, which the kernel then looks up.
  bool AddUnknown(const char* name, mode_t type, size_t next) {
    constexpr ino_t kUnknown = 0xffff'ffff;
    fuse_entry_param entry = {};
    entry.attr.st_ino = kUnknown;
    entry.attr.st_mode = type;
    return Append(name, entry, next);
  }

  void Reply() {
    if (fuse_reply_buf(req_, buffer_.data(), used_) == 0) unanswered_.clear();
  }

 private:
  bool Append(const char* name, const fuse_entry_param& entry, size_t next) {
    const auto room = buffer_.subspan(used_);
    const auto offset = static_cast<off_t>(next);
    const size_t need =
        with_attributes_
            ? fuse_add_direntry_plus(req_, room.data(), room.size(), name, &entry, offset)
            : fuse_add_direntry(req_, room.data(), room.size(), name, &entry.attr, offset);
    if (need > room.size()) return false;
    used_ += need;
    return true;
  }

  fuse_req_t req_;
  Namespace& files_;
  std::span<char> buffer_;
  size_t used_ = 0;
  bool with_attributes_;
  std::vector<uint64_t> unanswered_;  // Inodes to which the kernel has no reference yet.
};

// The requested part of a directory. The kernel's offset counts entries: 0 is ".", 1 is "..", the
// others follow.
struct Part {
  fuse_ino_t number;
  size_t size;
  off_t offset;
  bool with_attributes;
};

bool AddParent(Listing& listing, uint64_t parent, size_t next) {
  return parent == 0 ? listing.AddUnknown("..", S_IFDIR, next) : listing.Add("..", parent, next);
}

void ReplyListing(fuse_req_t req, const Part& part, const DirectoryView& view) {
  Listing listing(req, part.size, part.with_attributes);
  std::string name;  // libfuse requires a NUL at the end.
  for (auto i = static_cast<size_t>(part.offset); i < view.entries.size() + 2; ++i) {
    if (i < 2) {
      const bool is_added =
          i == 0 ? listing.Add(".", part.number, i + 1) : AddParent(listing, view.parent, i + 1);
      if (!is_added) break;
      continue;
    }
    const Entry& entry = view.entries[i - 2];
    if (!entry.is_listed) continue;
    name = entry.name;
    if (entry.inode == 0) {
      if (!listing.AddUnknown(name.c_str(), entry.type, i + 1)) break;
    } else {
      if (!listing.AddEntry(name.c_str(), view.base + entry.inode, i + 1)) break;
    }
  }
  listing.Reply();
}

// Replies, and returns true; without `may_block` returns false if that could take long.
bool TryList(fuse_req_t req, const Part& part, uint64_t handle, bool may_block) {
  const auto directory = MountOf(req).open_directories.Find(handle);
  if (directory == nullptr) {
    const auto view = FilesOf(req).List(part.number, may_block);
    if (view) ReplyListing(req, part, *view);
    return view.has_value();
  }
  const MutexLock lock(directory->mutex);
  // At the beginning, the directory is listed again, as for rewinddir(3).
  if (!directory->view || part.offset == 0) {
    auto view = FilesOf(req).List(part.number, may_block);
    if (!view) return false;
    directory->view = std::move(view);
  }
  ReplyListing(req, part, *directory->view);
  return true;
}

void List(fuse_req_t req, const Part& part, uint64_t handle) {
  constexpr const char* kWhat = "list";
  Answer(req, kWhat, part.number, [&] {
    if (TryList(req, part, handle, false)) return;
    const auto body = [part, handle](fuse_req_t later) { TryList(later, part, handle, true); };
    MountOf(req).slow_reads->Add(std::make_unique<SlowRequest>(req, kWhat, part.number, body));
  });
}

}  // namespace

void OpenDirOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* file) {
  Answer(req, "open", number, [&] {
    file->fh = 0;
    if (FilesOf(req).is_constant() || FilesOf(req).Find(number).tree != nullptr) {
      file->cache_readdir = 1;
      return ReplyOpen(req, file, FUSE_CAP_NO_OPENDIR_SUPPORT);
    }
    OpenDirectories& directories = MountOf(req).open_directories;
    const uint64_t handle = file->fh = directories.Add();
    if (fuse_reply_open(req, file) != 0) directories.Remove(handle);
  });
}

void ReleaseDirOp(fuse_req_t req, fuse_ino_t /*number*/, fuse_file_info* file) {
  MountOf(req).open_directories.Remove(file->fh);
  fuse_reply_err(req, 0);
}

void ReadDirOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* file) {
  List(req, {.number = number, .size = size, .offset = off, .with_attributes = false}, file->fh);
}

void ReadDirPlusOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off,
                   fuse_file_info* file) {
  List(req, {.number = number, .size = size, .offset = off, .with_attributes = true}, file->fh);
}

}  // namespace ckptfs
