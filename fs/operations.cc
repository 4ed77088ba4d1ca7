// The tree never changes, so the kernel may cache everything: entries, also missing ones,
// attributes, listings and pages. Inodes live as long as the mount, so forget does nothing. Slow
// reads are handed over (slow_reads.h). The kernel refuses writes, because the mount is read-only.

#include "fs/operations.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fs/slow_reads.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs {
namespace {

constexpr double kForever = 1e9;  // Seconds.

constexpr std::string_view kVerified = "user.ckptfs.verified";

Mount& MountOf(fuse_req_t req) { return *static_cast<Mount*>(fuse_req_userdata(req)); }

const Tree& TreeOf(fuse_req_t req) { return MountOf(req).tree; }

const Inode& InodeOf(fuse_req_t req, fuse_ino_t number) {
  const Inode* inode = TreeOf(req).Find(number);
  if (inode == nullptr) Fail(ENOENT, "no such inode");
  return *inode;
}

struct stat AttributesOf(const Mount& mount, const Inode& inode, fuse_ino_t number) {
  struct stat st = {};
  st.st_ino = number;
  st.st_mode =
      inode.is_directory() ? S_IFDIR | (0555 & ~mount.umask) : S_IFREG | (0444 & ~mount.umask);
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
  st.st_atim = st.st_mtim = st.st_ctim = mount.modified;
  return st;
}

fuse_entry_param EntryOf(fuse_req_t req, fuse_ino_t number) {
  fuse_entry_param entry = {};
  entry.ino = number;
  entry.entry_timeout = kForever;
  entry.attr_timeout = kForever;
  entry.attr = AttributesOf(MountOf(req), InodeOf(req, number), number);
  return entry;
}

// A buffer of at least `size` bytes that the thread uses for all its replies. Reusing it saves a
// page fault for each 4 KiB of each read, and beginning on a page a tenth of the copying.
std::span<char> Scratch(size_t size) {
  constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(char* buffer) const { ::operator delete(buffer, kPage); }
  };
  thread_local std::unique_ptr<char, Free> buffer;
  thread_local size_t capacity = 0;
  if (capacity < size) {
    capacity = 0;
    buffer.reset(static_cast<char*>(::operator new(size, kPage)));
    capacity = size;
  }
  return {buffer.get(), size};
}

// Returns the errno for readers of a file, which do not expect EBADMSG.
int ErrnoForReader(int code) {
  constexpr int kKnown[] = {EACCES, EINTR, ENOENT, ENOKEY, ENOMEM, ESTALE, ETIMEDOUT};
  return std::ranges::count(kKnown, code) != 0 ? code : EIO;
}

void ReplyFailure(fuse_req_t req, const char* what, fuse_ino_t number, int code,
                  std::string_view why) noexcept {
  try {
    // The user knows that.
    if (code != EINTR) MountOf(req).log.Error("cannot {} inode {}: {}", what, number, why);
  } catch (const std::exception&) {
    // Out of memory for the message, but not for the errno.
    fuse_reply_err(req, code);
    return;
  }
  fuse_reply_err(req, code);
}

// Runs `body` and replies with an error if it throws: no exception may reach libfuse. Returns
// whether `body` has replied.
template <typename Body>
bool Answer(fuse_req_t req, const char* what, fuse_ino_t number, Body body) noexcept {
  try {
    body();
    return true;
  } catch (const Error& e) {
    ReplyFailure(req, what, number, ErrnoForReader(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    ReplyFailure(req, what, number, ENOMEM, "out of memory");
  } catch (const std::exception& e) {
    ReplyFailure(req, what, number, EIO, e.what());
  }
  return false;
}

void InitOp(void* userdata, fuse_conn_info* connection) {
  Mount& mount = *static_cast<Mount*>(userdata);
  mount.capabilities = connection->capable;
  connection->max_readahead = ReadAheadOf(mount);
  // A process that is killed in a direct read waits for it to end if the read is asynchronous.
  if (mount.is_remote) connection->want &= ~static_cast<unsigned>(FUSE_CAP_ASYNC_DIO);
  if (mount.slow_reads != nullptr) {
    connection->max_background = kMostReadAhead;
    connection->congestion_threshold = kMostReadAhead;
  }
}

void LookupOp(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Answer(req, "look into", parent, [&] {
    if (std::string_view(name).size() > Tree::kMaxName) {  // Newer kernels do not check it.
      fuse_reply_err(req, ENAMETOOLONG);
      return;
    }
    const uint64_t number = TreeOf(req).Lookup(parent, name);
    fuse_entry_param missing = {};
    missing.entry_timeout = kForever;
    const fuse_entry_param entry = number == 0 ? missing : EntryOf(req, number);
    fuse_reply_entry(req, &entry);
  });
}

void GetAttrOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* /*file*/) {
  Answer(req, "stat", number, [&] {
    const fuse_entry_param entry = EntryOf(req, number);
    fuse_reply_attr(req, &entry.attr, entry.attr_timeout);
  });
}

// Open files need no state. A kernel with `capability` opens everything without further requests
// after ENOSYS, and keeps pages and listings.
void ReplyOpen(fuse_req_t req, fuse_file_info* file, unsigned capability) {
  if ((MountOf(req).capabilities & capability) != 0) {
    fuse_reply_err(req, ENOSYS);
    return;
  }
  file->keep_cache = 1;
  file->cache_readdir = 1;
  fuse_reply_open(req, file);
}

void OpenOp(fuse_req_t req, fuse_ino_t /*number*/, fuse_file_info* file) {
  ReplyOpen(req, file, FUSE_CAP_NO_OPEN_SUPPORT);
}

void OpenDirOp(fuse_req_t req, fuse_ino_t /*number*/, fuse_file_info* file) {
  ReplyOpen(req, file, FUSE_CAP_NO_OPENDIR_SUPPORT);
}

// Reports a file to the invalidator if it could not be read because its bytes are corrupt.
void ReportCorrupt(const Mount& mount, fuse_ino_t number) noexcept {
  const Inode* const inode = mount.tree.Find(number);
  if (inode == nullptr || inode->is_directory()) return;
  if (inode->source->verdict() != Verdict::kWrong) return;
  try {
    mount.invalidator->Add(number);
  } catch (const std::bad_alloc&) {
    // The next read that fails reports it, too.
  }
}

// Copies through a buffer. Measured: to splice the file or to map it is a tenth to a fifth faster,
// but neither can report that the file was changed or truncated under the mount.
void Read(fuse_req_t req, fuse_ino_t number, size_t size, off_t off) {
  const Inode& inode = InodeOf(req, number);
  const uint64_t begin = std::min(static_cast<uint64_t>(off), inode.length);
  const auto buffer = Scratch(std::min<uint64_t>(size, inode.length - begin));
  if (!buffer.empty()) {
    inode.source->ReadAt(inode.offset + begin, std::as_writable_bytes(buffer));
  }
  fuse_reply_buf(req, buffer.data(), buffer.size());
}

// Reads a file and replies if that takes no longer than a local read. Returns whether it does.
bool TryRead(fuse_req_t req, const Inode& inode, size_t size, off_t off) {
  const uint64_t begin = std::min(static_cast<uint64_t>(off), inode.length);
  const auto buffer = Scratch(std::min<uint64_t>(size, inode.length - begin));
  if (!buffer.empty() &&
      !inode.source->TryReadAt(inode.offset + begin, std::as_writable_bytes(buffer))) {
    return false;
  }
  fuse_reply_buf(req, buffer.data(), buffer.size());
  return true;
}

class SlowRead final : public SlowReads::Request {
 public:
  SlowRead(fuse_req_t req, fuse_ino_t number, size_t size, off_t off)
      : req_(req), number_(number), size_(size), offset_(off) {}

  bool Run() noexcept override {
    const Mount& mount = MountOf(req_);  // After the reply there is no request any more.
    bool is_preempted = false;
    const bool is_read = Answer(req_, "read", number_, [&] {
      try {
        Read(req_, number_, size_, offset_);
      } catch (const Preempted&) {
        is_preempted = true;
      }
    });
    if (!is_read && mount.invalidator != nullptr) ReportCorrupt(mount, number_);
    return !is_preempted;
  }

  bool IsCancelled() const noexcept override {
    const pid_t thread = fuse_req_ctx(req_)->pid;
    return fuse_req_interrupted(req_) != 0 ? HasTerminatingSignal(thread) : HasVanished(thread);
  }

  void Refuse(int code) noexcept override { fuse_reply_err(req_, code); }

 private:
  fuse_req_t req_;
  const fuse_ino_t number_;
  const size_t size_;
  const off_t offset_;
};

void ReadOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* /*file*/) {
  Answer(req, "read", number, [&] {
    const Mount& mount = MountOf(req);
    const Inode& inode = InodeOf(req, number);
    if (inode.is_directory()) Fail(EISDIR, "it is a directory");
    if (!TryRead(req, inode, size, off)) {
      mount.slow_reads->Add(std::make_unique<SlowRead>(req, number, size, off));
    }
  });
}

// Adds entries to a reply until it is full.
class Listing {
 public:
  Listing(fuse_req_t req, size_t size, bool with_attributes)
      : req_(req), buffer_(Scratch(size)), with_attributes_(with_attributes) {}

  // `next` is the offset of the entry after this one. Returns false if there is no room.
  bool Add(const char* name, uint64_t number, size_t next) {
    const fuse_entry_param entry = EntryOf(req_, number);
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

  void Reply() const { fuse_reply_buf(req_, buffer_.data(), used_); }

 private:
  fuse_req_t req_;
  std::span<char> buffer_;
  size_t used_ = 0;
  bool with_attributes_;
};

// The kernel's offset counts entries: 0 is ".", 1 is "..", the others follow.
void List(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, bool with_attributes) {
  Answer(req, "list", number, [&] {
    const Inode& directory = InodeOf(req, number);
    const auto entries = TreeOf(req).Entries(directory);
    Listing listing(req, size, with_attributes);
    std::string name;  // libfuse requires a NUL at the end.
    for (auto i = static_cast<size_t>(off); i < entries.size() + 2; ++i) {
      if (i < 2) {
        if (!listing.Add(i == 0 ? "." : "..", i == 0 ? number : directory.parent, i + 1)) break;
      } else if (entries[i - 2].is_listed) {
        name = entries[i - 2].name;
        if (!listing.Add(name.c_str(), entries[i - 2].inode, i + 1)) break;
      }
    }
    listing.Reply();
  });
}

void ReadDirOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off,
               fuse_file_info* /*file*/) {
  List(req, number, size, off, false);
}

void ReadDirPlusOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off,
                   fuse_file_info* /*file*/) {
  List(req, number, size, off, true);
}

// A full file system. `df` omits one without blocks.
void StatFsOp(fuse_req_t req, fuse_ino_t /*number*/) {
  constexpr unsigned kBlock = 4096;
  const Tree& tree = TreeOf(req);
  struct statvfs st = {};
  st.f_bsize = st.f_frsize = kBlock;
  st.f_blocks = tree.size() / kBlock + tree.inode_count();  // At most one block is not full.
  st.f_files = tree.inode_count();
  st.f_namemax = Tree::kMaxName;
  fuse_reply_statfs(req, &st);
}

// The protocol of both xattr calls: a size of 0 asks for the length.
void ReplyXattr(fuse_req_t req, std::string_view value, size_t size) {
  if (size == 0) {
    fuse_reply_xattr(req, value.size());
  } else if (size < value.size()) {
    fuse_reply_err(req, ERANGE);
  } else {
    fuse_reply_buf(req, value.data(), value.size());
  }
}

// The value of the only attribute that changes; empty if the file has no such attribute.
std::string_view VerifiedText(const Inode& inode) {
  if (inode.is_directory()) return {};
  switch (inode.source->verdict()) {
    case Verdict::kNone:
      break;
    case Verdict::kUnread:
      return "unread";
    case Verdict::kRight:
      return "yes";
    case Verdict::kWrong:
      return "no";
  }
  return {};
}

void GetXattrOp(fuse_req_t req, fuse_ino_t number, const char* name, size_t size) {
  Answer(req, "get an attribute of", number, [&] {
    if (name == kVerified) {
      const std::string_view text = VerifiedText(InodeOf(req, number));
      return text.empty() ? void(fuse_reply_err(req, ENODATA)) : ReplyXattr(req, text, size);
    }
    const Attributes& attributes = TreeOf(req).AttributesOf(number);
    const auto found = std::ranges::find(attributes, name, &Attributes::value_type::first);
    if (found == attributes.end()) {
      fuse_reply_err(req, ENODATA);
    } else {
      ReplyXattr(req, found->second, size);
    }
  });
}

void ListXattrOp(fuse_req_t req, fuse_ino_t number, size_t size) {
  Answer(req, "list the attributes of", number, [&] {
    std::string names;
    for (const auto& [name, value] : TreeOf(req).AttributesOf(number)) names.append(name) += '\0';
    if (!VerifiedText(InodeOf(req, number)).empty()) names.append(kVerified) += '\0';
    ReplyXattr(req, names, size);
  });
}

}  // namespace

fuse_lowlevel_ops Operations(bool has_attributes) {
  return {
      .init = InitOp,
      .lookup = LookupOp,
      .getattr = GetAttrOp,
      .open = OpenOp,
      .read = ReadOp,
      .opendir = OpenDirOp,
      .readdir = ReadDirOp,
      .statfs = StatFsOp,
      .getxattr = has_attributes ? GetXattrOp : nullptr,
      .listxattr = has_attributes ? ListXattrOp : nullptr,
      .readdirplus = ReadDirPlusOp,
  };
}

}  // namespace ckptfs
