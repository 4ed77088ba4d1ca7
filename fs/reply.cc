#include "fs/reply.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <utility>

#include "parser/io/byte_source.h"

namespace ckptfs {

struct stat AttributesOf(const Mount& mount, const Node& node, fuse_ino_t number) {
  const Inode& inode = *node.inode;
  struct stat st = {};
  st.st_ino = number;
  st.st_mode =
      inode.is_directory() ? S_IFDIR | (0555 & ~node.umask) : S_IFREG | (0444 & ~node.umask);
  if (node.target != nullptr) {
    st.st_mode = S_IFLNK | 0777;
    st.st_size = static_cast<off_t>(node.target->size());
  }
  st.st_nlink = inode.links;
  st.st_uid = mount.uid;
  st.st_gid = mount.gid;
  if (!inode.is_directory()) {
    // The buffer size of stdio: a sixth less work than with its default of 4 KiB.
    st.st_blksize = 128 << 10;
    st.st_size = static_cast<off_t>(inode.length);
    if (!inode.source->is_hole()) {
      st.st_blocks = static_cast<blkcnt_t>(inode.length / 512 + (inode.length % 512 != 0 ? 1 : 0));
    }
  }
  st.st_atim = st.st_mtim = st.st_ctim = node.modified;
  return st;
}

fuse_entry_param EntryOf(const Mount& mount, const Node& node, fuse_ino_t number) {
  fuse_entry_param entry = {};
  entry.ino = number;
  entry.entry_timeout = kForever;
  entry.attr_timeout = node.seconds;
  entry.attr = AttributesOf(mount, node, number);
  return entry;
}

namespace {

// A buffer in whole pages.
class PageBuffer {
 public:
  PageBuffer() = default;
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  ~PageBuffer() { Free(); }

  std::span<char> Get(size_t size) {
    if (size_ < size) {
      Free();
      const size_t whole = (size + page_ - 1) / page_ * page_;
      data_ = static_cast<char*>(::operator new(whole, std::align_val_t(page_)));
      size_ = whole;
      ++count;
    }
    return {data_, size};
  }

  void Trim() const {
    constexpr unsigned kMany = 24;
    if (data_ != nullptr && count > kMany) ::madvise(data_, size_, MADV_DONTNEED);
  }

 private:
  void Free() {
    if (data_ == nullptr) return;
    ::operator delete(data_, std::align_val_t(page_));
    data_ = nullptr;
    size_ = 0;
    --count;
  }

  static inline std::atomic<unsigned> count = 0;  // Of all threads.
  // Of 4 KiB, or up to 64 KiB on ARM. Parts of others must not be trimmed.
  const size_t page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  char* data_ = nullptr;
  size_t size_ = 0;
};

thread_local PageBuffer scratch;

}  // namespace

std::span<char> Scratch(size_t size) { return scratch.Get(size); }

void TrimScratch() { scratch.Trim(); }

int ErrnoForReader(int code) {
  constexpr int kKnown[] = {EACCES, EINTR,   ENAMETOOLONG, ENOENT,   ENOKEY,
                            ENOMEM, ENOTDIR, ESTALE,       ETIMEDOUT};
  return std::ranges::count(kKnown, code) != 0 ? code : EIO;
}

void ReplyFailure(fuse_req_t req, const char* what, fuse_ino_t number, int code,
                  std::string_view why) noexcept {
  try {
    // The user has interrupted it.
    if (code != EINTR) MountOf(req).log.Error("cannot {} inode {}: {}", what, number, why);
  } catch (const std::exception&) {
    // Out of memory for the message, but not for the errno.
    fuse_reply_err(req, code);
    return;
  }
  fuse_reply_err(req, code);
}

void ReplyOpen(fuse_req_t req, fuse_file_info* file, unsigned capability) {
  const Mount& mount = MountOf(req);
  if (mount.files.is_constant() && (mount.capabilities & capability) != 0) {
    fuse_reply_err(req, ENOSYS);
    return;
  }
  file->keep_cache = 1;
  fuse_reply_open(req, file);
}

bool IsReaderGone(fuse_req_t req) {
  const pid_t thread = fuse_req_ctx(req)->pid;
  return fuse_req_interrupted(req) != 0 ? HasTerminatingSignal(thread) : HasVanished(thread);
}

}  // namespace ckptfs
