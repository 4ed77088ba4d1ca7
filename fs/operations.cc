// A tree never changes, so the kernel may cache everything: entries, including missing ones,
// attributes, listings and pages. Names in a store are valid for a while. Requests that may take
// long are handed over (slow_reads.h). The kernel refuses writes, because the mount is read-only.

#include "fs/operations.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fs/directory_operations.h"
#include "fs/reply.h"
#include "fs/slow_reads.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs {
namespace {

constexpr std::string_view kVerified = "user.ckptfs.verified";

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
    if (std::string_view(name).size() > Tree::kMaxFuseName) {  // Newer kernels do not check it.
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

void OpenOp(fuse_req_t req, fuse_ino_t /*number*/, fuse_file_info* file) {
  ReplyOpen(req, file, FUSE_CAP_NO_OPEN_SUPPORT);
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

// Copies through a buffer. Measured: splicing or mapping the file is 10 to 20 % faster, but neither
// detects that the file was changed or truncated under the mount.
void Read(fuse_req_t req, fuse_ino_t number, size_t size, off_t off) {
  const Node node = FilesOf(req).Find(number);
  const Inode& inode = *node.inode;
  const uint64_t begin = std::min(static_cast<uint64_t>(off), inode.length);
  const auto buffer = Scratch(std::min<uint64_t>(size, inode.length - begin));
  if (!buffer.empty()) {
    inode.source->ReadAt(inode.offset + begin, std::as_writable_bytes(buffer));
  }
  fuse_reply_buf(req, buffer.data(), buffer.size());
  TrimScratch();
}

// Reads a file and replies if that takes no longer than a local read. Returns whether it did.
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

// A full file system. `df` omits one without blocks.
void StatFsOp(fuse_req_t req, fuse_ino_t /*number*/) {
  constexpr unsigned kBlock = 4096;
  const Namespace::Totals totals = FilesOf(req).totals();
  struct statvfs st = {};
  st.f_bsize = st.f_frsize = kBlock;
  st.f_blocks = totals.bytes / kBlock + totals.inodes;  // At most one block is not full.
  st.f_files = totals.inodes;
  st.f_namemax = Tree::kMaxFuseName;
  fuse_reply_statfs(req, &st);
}

// The protocol of both xattr calls: a size of 0 requests the length.
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
