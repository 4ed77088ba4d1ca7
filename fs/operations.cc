// The tree never changes, so the kernel may cache everything: entries, also missing ones,
// attributes, listings and pages. Inodes live as long as the mount, so forget does nothing. Slow
// reads are handed over (slow_reads.h). The kernel refuses writes, because the mount is read-only.

#include "fs/operations.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fs/slow_reads.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs {
namespace {

constexpr std::string_view kVerified = "user.ckptfs.verified";

Mount& MountOf(fuse_req_t req) { return *static_cast<Mount*>(fuse_req_userdata(req)); }

Namespace& FilesOf(fuse_req_t req) { return MountOf(req).files; }

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

bool IsReaderGone(fuse_req_t req) {
  const pid_t thread = fuse_req_ctx(req)->pid;
  return fuse_req_interrupted(req) != 0 ? HasTerminatingSignal(thread) : HasVanished(thread);
}

// A request that may have to wait, such as for the parse of a checkpoint.
class SlowRequest final : public SlowReads::Request {
 public:
  using Body = std::function<void(fuse_req_t req)>;

  // `body` replies, or throws.
  SlowRequest(fuse_req_t req, const char* what, fuse_ino_t number, Body body)
      : req_(req), what_(what), number_(number), body_(std::move(body)) {}

  bool Run() noexcept override {
    bool is_preempted = false;
    Answer(req_, what_, number_, [&] {
      try {
        body_(req_);
      } catch (const Preempted&) {
        is_preempted = true;
      }
    });
    return !is_preempted;
  }

  bool IsCancelled() const noexcept override { return IsReaderGone(req_); }
  void Refuse(int code) noexcept override { fuse_reply_err(req_, code); }

 private:
  fuse_req_t req_;
  const char* const what_;
  const fuse_ino_t number_;
  const Body body_;
};

void ReplyFound(fuse_req_t req, const Found& found) {
  Mount& mount = MountOf(req);  // After the reply there is no request any more.
  fuse_entry_param entry = {};
  if (found.number != 0) entry = EntryOf(mount, found.node, found.number);
  entry.entry_timeout = found.seconds;
  if (fuse_reply_entry(req, &entry) != 0 && found.number != 0) mount.files.Forget(found.number, 1);
}

void LookupOp(fuse_req_t req, fuse_ino_t parent, const char* name) {
  constexpr const char* kWhat = "look into";
  Answer(req, kWhat, parent, [&] {
    if (std::string_view(name).size() > Tree::kMaxName) {  // Newer kernels do not check it.
      fuse_reply_err(req, ENAMETOOLONG);
      return;
    }
    if (const auto found = FilesOf(req).Lookup(parent, name, false)) return ReplyFound(req, *found);
    const auto body = [parent, name = std::string(name)](fuse_req_t later) {
      ReplyFound(later, FilesOf(later).Lookup(parent, name, true).value());
    };
    MountOf(req).slow_reads->Add(std::make_unique<SlowRequest>(req, kWhat, parent, body));
  });
}

void ForgetOp(fuse_req_t req, fuse_ino_t number, uint64_t count) {
  FilesOf(req).Forget(number, count);
  fuse_reply_none(req);
}

void ForgetMultiOp(fuse_req_t req, size_t count, fuse_forget_data* forgotten) {
  for (const fuse_forget_data& data : std::span(forgotten, count)) {
    FilesOf(req).Forget(data.ino, data.nlookup);
  }
  fuse_reply_none(req);
}

void GetAttrOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* /*file*/) {
  Answer(req, "stat", number, [&] {
    const fuse_entry_param entry = EntryOf(MountOf(req), FilesOf(req).Find(number), number);
    fuse_reply_attr(req, &entry.attr, entry.attr_timeout);
  });
}

void ReadLinkOp(fuse_req_t req, fuse_ino_t number) {
  Answer(req, "read", number, [&] {
    const Node node = FilesOf(req).Find(number);
    if (node.target == nullptr) Fail(EINVAL, "it is no link");
    fuse_reply_readlink(req, node.target->c_str());
  });
}

// Open files need no state. A kernel with `capability` opens everything without further requests
// after ENOSYS, and keeps pages and listings; but it could then not close a directory of a store.
void ReplyOpen(fuse_req_t req, fuse_file_info* file, unsigned capability) {
  const Mount& mount = MountOf(req);
  if (mount.files.is_constant() && (mount.capabilities & capability) != 0) {
    fuse_reply_err(req, ENOSYS);
    return;
  }
  file->keep_cache = 1;
  fuse_reply_open(req, file);
}

void OpenOp(fuse_req_t req, fuse_ino_t /*number*/, fuse_file_info* file) {
  ReplyOpen(req, file, FUSE_CAP_NO_OPEN_SUPPORT);
}

// A directory of a store while it is open: listed once, however many requests that takes. Belongs to
// one request at a time, as the kernel sends them.
struct OpenDirectory {
  std::optional<DirectoryView> view;
};

OpenDirectory* HandleOf(const fuse_file_info* file) {
  return reinterpret_cast<OpenDirectory*>(file->fh);  // NOLINT: the kernel keeps an integer.
}

void OpenDirOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* file) {
  Answer(req, "open", number, [&] {
    file->fh = 0;
    if (FilesOf(req).is_constant() || FilesOf(req).Find(number).tree != nullptr) {
      file->cache_readdir = 1;
      return ReplyOpen(req, file, FUSE_CAP_NO_OPENDIR_SUPPORT);
    }
    auto handle = std::make_unique<OpenDirectory>();
    file->fh = reinterpret_cast<uint64_t>(handle.get());  // NOLINT: the kernel keeps an integer.
    if (fuse_reply_open(req, file) == 0) static_cast<void>(handle.release());
  });
}

void ReleaseDirOp(fuse_req_t req, fuse_ino_t /*number*/, fuse_file_info* file) {
  const std::unique_ptr<OpenDirectory> closed(HandleOf(file));
  fuse_reply_err(req, 0);
}

// Reports a file to the invalidator if it could not be read because its bytes are corrupt.
void ReportCorrupt(const Mount& mount, fuse_ino_t number) noexcept {
  try {
    const Node node = mount.files.Find(number);
    if (node.inode->is_directory() || node.inode->source->verdict() != Verdict::kWrong) return;
    mount.invalidator->Add(number);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next failure reports it.
  }
}

// Copies through a buffer. Measured: to splice the file or to map it is a tenth to a fifth faster,
// but neither can report that the file was changed or truncated under the mount.
void Read(fuse_req_t req, fuse_ino_t number, size_t size, off_t off) {
  const Node node = FilesOf(req).Find(number);
  const Inode& inode = *node.inode;
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

  bool IsCancelled() const noexcept override { return IsReaderGone(req_); }

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
    const Node node = mount.files.Find(number);
    const Inode& inode = *node.inode;
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
    return Append(name, EntryOf(MountOf(req_), FilesOf(req_).Find(number), number), next);
  }

  // The same for an entry without an inode, which the kernel then looks up.
  bool AddUnknown(const char* name, mode_t type, size_t next) {
    constexpr ino_t kUnknown = 0xffff'ffff;
    fuse_entry_param entry = {};
    entry.attr.st_ino = kUnknown;
    entry.attr.st_mode = type;
    return Append(name, entry, next);
  }

  void Reply() const { fuse_reply_buf(req_, buffer_.data(), used_); }

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
  std::span<char> buffer_;
  size_t used_ = 0;
  bool with_attributes_;
};

// A part of a directory that a request asks for. The kernel's offset counts entries: 0 is ".", 1 is
// "..", the others follow.
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
      // The kernel takes no reference to these two.
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
      if (!listing.Add(name.c_str(), view.base + entry.inode, i + 1)) break;
      if (part.with_attributes) FilesOf(req).Refer(view.base + entry.inode);
    }
  }
  listing.Reply();
}

void List(fuse_req_t req, const Part& part, OpenDirectory* handle) {
  constexpr const char* kWhat = "list";
  Answer(req, kWhat, part.number, [&] {
    if (handle != nullptr && handle->view) return ReplyListing(req, part, *handle->view);
    if (const auto view = FilesOf(req).List(part.number, false)) {
      if (handle != nullptr) handle->view = view;
      return ReplyListing(req, part, *view);
    }
    const auto body = [part, handle](fuse_req_t later) {
      const DirectoryView view = FilesOf(later).List(part.number, true).value();
      if (handle != nullptr) handle->view = view;
      ReplyListing(later, part, view);
    };
    MountOf(req).slow_reads->Add(std::make_unique<SlowRequest>(req, kWhat, part.number, body));
  });
}

void ReadDirOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* file) {
  List(req, {.number = number, .size = size, .offset = off, .with_attributes = false},
       HandleOf(file));
}

void ReadDirPlusOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off,
                   fuse_file_info* file) {
  List(req, {.number = number, .size = size, .offset = off, .with_attributes = true},
       HandleOf(file));
}

// A full file system. `df` omits one without blocks.
void StatFsOp(fuse_req_t req, fuse_ino_t /*number*/) {
  constexpr unsigned kBlock = 4096;
  const Namespace::Totals totals = FilesOf(req).totals();
  struct statvfs st = {};
  st.f_bsize = st.f_frsize = kBlock;
  st.f_blocks = totals.bytes / kBlock + totals.inodes;  // At most one block is not full.
  st.f_files = totals.inodes;
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

const Attributes& ExtendedOf(const Node& node, fuse_ino_t number) {
  static const Attributes none;
  return node.tree == nullptr ? none : node.tree->AttributesOf(number - node.base);
}

void GetXattrOp(fuse_req_t req, fuse_ino_t number, const char* name, size_t size) {
  Answer(req, "get an attribute of", number, [&] {
    if (name == kVerified) {
      const std::string_view text = VerifiedText(*FilesOf(req).Find(number).inode);
      return text.empty() ? void(fuse_reply_err(req, ENODATA)) : ReplyXattr(req, text, size);
    }
    const Node node = FilesOf(req).Find(number);
    const Attributes& attributes = ExtendedOf(node, number);
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
    const Node node = FilesOf(req).Find(number);
    for (const auto& [name, value] : ExtendedOf(node, number)) names.append(name) += '\0';
    if (!VerifiedText(*node.inode).empty()) names.append(kVerified) += '\0';
    ReplyXattr(req, names, size);
  });
}

}  // namespace

fuse_lowlevel_ops Operations(bool has_attributes) {
  return {
      .init = InitOp,
      .lookup = LookupOp,
      .forget = ForgetOp,
      .getattr = GetAttrOp,
      .readlink = ReadLinkOp,
      .open = OpenOp,
      .read = ReadOp,
      .opendir = OpenDirOp,
      .readdir = ReadDirOp,
      .releasedir = ReleaseDirOp,
      .statfs = StatFsOp,
      .getxattr = has_attributes ? GetXattrOp : nullptr,
      .listxattr = has_attributes ? ListXattrOp : nullptr,
      .forget_multi = ForgetMultiOp,
      .readdirplus = ReadDirPlusOp,
  };
}

}  // namespace ckptfs
