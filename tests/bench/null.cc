// A FUSE daemon that does no work, to know what the way itself costs. Whoever reads through FUSE
// pays for the kernel's side, for the switch to a daemon and back, and for one copy. What a file
// system adds to that is its own, and only that is ours to make better: so ckptfs is measured
// beside this program and not against a wish.
//
// It shows a flat directory of COUNT files of SIZE bytes, f000000.memmap and so on, and the
// meta.json with which TensorDict.load_memmap loads them as tensors. It gives the kernel the same
// settings as ckptfs (infinite timeouts, no open requests), and answers each read with the same
// memory, which it never touches.
//
// Its options are the settings of the kernel and of libfuse, to find the best ones by trial.

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fmt/format.h>
#include <fuse_lowlevel.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

constexpr double kForever = 1e9;            // Seconds.
constexpr size_t kLargestReply = 1U << 20;  // In bytes: no kernel asks for more by default.
constexpr uint64_t kMostFiles = 1'000'000;  // The names have six digits.
constexpr std::string_view kMetaName = "meta.json";

// The root has FUSE's number for it, and the files follow meta.json.
constexpr fuse_ino_t kMeta = FUSE_ROOT_ID + 1;
constexpr fuse_ino_t kFirstFile = kMeta + 1;

struct Options {
  std::string mountpoint;
  uint64_t count = 0;
  uint64_t size = 0;           // Of each file, in bytes.
  uint64_t threads = 2;        // That wait for requests.
  uint64_t read_ahead = 1024;  // Of the kernel, in KiB.
  uint64_t request = 1024;     // The most that the kernel asks for at once, in KiB.
  uint64_t clone_fd = 0;       // 1: each thread has a /dev/fuse of its own.
};

struct Null {
  Options options;
  std::string meta;             // The content of meta.json.
  const char* reply = nullptr;  // kLargestReply bytes, all zero.
  unsigned capabilities = 0;    // Of the kernel: FUSE_CAP_*, set by its first request.
};

Null& NullOf(fuse_req_t req) { return *static_cast<Null*>(fuse_req_userdata(req)); }

std::string NameOf(uint64_t file) { return fmt::format("f{:06}.memmap", file); }

std::string MakeMeta(const Options& options) {
  std::string meta = "{";
  for (uint64_t i = 0; i < options.count; ++i) {
    meta += fmt::format(
        R"("f{:06}":{{"device":"cpu","shape":[{}],"dtype":"torch.float32","is_nested":false}},)", i,
        options.size / sizeof(float));
  }
  return meta + R"("shape":[],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>"})";
}

fuse_entry_param EntryOf(const Null& null, fuse_ino_t number) {
  const bool is_directory = number == FUSE_ROOT_ID;
  const uint64_t size = is_directory ? 0 : number == kMeta ? null.meta.size() : null.options.size;
  fuse_entry_param entry = {};
  entry.ino = number;
  entry.entry_timeout = kForever;
  entry.attr_timeout = kForever;
  entry.attr.st_ino = number;
  entry.attr.st_mode = is_directory ? S_IFDIR | 0555 : S_IFREG | 0444;
  entry.attr.st_nlink = is_directory ? 2 : 1;
  entry.attr.st_uid = ::getuid();
  entry.attr.st_gid = ::getgid();
  entry.attr.st_size = static_cast<off_t>(size);
  entry.attr.st_blocks = (entry.attr.st_size + 511) / 512;
  return entry;
}

// Returns the inode of a name in the root, or 0.
fuse_ino_t Find(const Null& null, std::string_view name) {
  if (name == kMetaName) return kMeta;
  uint64_t file = 0;
  if (!name.starts_with('f')) return 0;
  std::from_chars(name.data() + 1, name.data() + name.size(), file);
  return file < null.options.count && name == NameOf(file) ? kFirstFile + file : 0;
}

void InitOp(void* userdata, fuse_conn_info* connection) {
  Null& null = *static_cast<Null*>(userdata);
  null.capabilities = connection->capable;
  connection->max_readahead = static_cast<unsigned>(null.options.read_ahead * 1024);
  connection->max_write = static_cast<unsigned>(null.options.request * 1024);  // Of reads as well.
}

void LookupOp(fuse_req_t req, fuse_ino_t /*parent*/, const char* name) {
  const fuse_ino_t number = Find(NullOf(req), name);
  fuse_entry_param missing = {};
  missing.entry_timeout = kForever;
  const fuse_entry_param entry = number == 0 ? missing : EntryOf(NullOf(req), number);
  fuse_reply_entry(req, &entry);
}

void GetAttrOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* /*file*/) {
  const fuse_entry_param entry = EntryOf(NullOf(req), number);
  fuse_reply_attr(req, &entry.attr, entry.attr_timeout);
}

void ReplyOpen(fuse_req_t req, fuse_file_info* file, unsigned capability) {
  if ((NullOf(req).capabilities & capability) != 0) {
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

void ReadOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* /*file*/) {
  const Null& null = NullOf(req);
  const uint64_t length = number == kMeta ? null.meta.size() : null.options.size;
  const uint64_t begin = std::min(static_cast<uint64_t>(off), length);
  const size_t count = std::min({size, length - begin, kLargestReply});
  fuse_reply_buf(req, number == kMeta ? null.meta.data() + begin : null.reply, count);
}

void List(fuse_req_t req, size_t size, off_t off, bool with_attributes) {
  const Null& null = NullOf(req);
  thread_local std::vector<char> buffer;
  buffer.resize(std::max(size, buffer.size()));
  size_t used = 0;
  for (auto i = static_cast<uint64_t>(off); i <= null.options.count; ++i) {
    const fuse_entry_param entry = EntryOf(null, kMeta + i);
    const std::string name = i == 0 ? std::string(kMetaName) : NameOf(i - 1);
    const auto next = static_cast<off_t>(i + 1);
    char* const at = buffer.data() + used;
    const size_t room = size - used;
    const size_t need = with_attributes
                            ? fuse_add_direntry_plus(req, at, room, name.c_str(), &entry, next)
                            : fuse_add_direntry(req, at, room, name.c_str(), &entry.attr, next);
    if (need > room) break;
    used += need;
  }
  fuse_reply_buf(req, buffer.data(), used);
}

void ReadDirOp(fuse_req_t req, fuse_ino_t /*number*/, size_t size, off_t off,
               fuse_file_info* /*file*/) {
  List(req, size, off, false);
}

void ReadDirPlusOp(fuse_req_t req, fuse_ino_t /*number*/, size_t size, off_t off,
                   fuse_file_info* /*file*/) {
  List(req, size, off, true);
}

constexpr fuse_lowlevel_ops kOperations = {
    .init = InitOp,
    .lookup = LookupOp,
    .getattr = GetAttrOp,
    .open = OpenOp,
    .read = ReadOp,
    .opendir = OpenDirOp,
    .readdir = ReadDirOp,
    .readdirplus = ReadDirPlusOp,
};

uint64_t Number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    Fail(EINVAL, "{} is not a number", Quoted(text));
  }
  return number;
}

uint64_t* MemberOf(Options& options, std::string_view flag) {
  if (flag == "--threads") return &options.threads;
  if (flag == "--read-ahead") return &options.read_ahead;
  if (flag == "--request") return &options.request;
  if (flag == "--clone-fd") return &options.clone_fd;
  Fail(EINVAL, "there is no option {}", Quoted(flag));
}

Options ParseOptions(std::span<const char* const> arguments) {
  Options options;
  while (!arguments.empty() && std::string_view(arguments[0]).starts_with("--")) {
    if (arguments.size() < 2) Fail(EINVAL, "{} needs a number", arguments[0]);
    *MemberOf(options, arguments[0]) = Number(arguments[1]);
    arguments = arguments.subspan(2);
  }
  if (arguments.size() != 3) {
    Fail(EINVAL,
         "usage: null [--threads N] [--read-ahead KIB] [--request KIB] [--clone-fd 1] MOUNTPOINT "
         "COUNT SIZE");
  }
  options.mountpoint = arguments[0];
  options.count = Number(arguments[1]);
  options.size = Number(arguments[2]);
  if (options.count > kMostFiles) {
    Fail(EINVAL, "{} files (maximum {})", options.count, kMostFiles);
  }
  return options;
}

// Must happen before the kernel gets the answer to its first request.
void RaiseReadAhead(const Options& options) {
  struct statx st = {};
  if (::statx(AT_FDCWD, options.mountpoint.c_str(), AT_STATX_DONT_SYNC, STATX_INO, &st) < 0) return;
  std::ofstream file(
      fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", st.stx_dev_major, st.stx_dev_minor));
  file << options.read_ahead;
}

template <auto function>
struct Call {
  template <typename T>
  void operator()(T* thing) const {
    function(thing);
  }
};

// Mounts, goes to the background, and returns there when the mount is undone.
int Serve(Null null) {
  std::string program = "null";
  std::string flag = "-o";
  std::string mount = "ro,nosuid,nodev,default_permissions,fsname=null,subtype=null";
  std::array<char*, 3> argv = {program.data(), flag.data(), mount.data()};
  fuse_args args = FUSE_ARGS_INIT(argv.size(), argv.data());
  const std::unique_ptr<fuse_args, Call<fuse_opt_free_args>> freed_at_exit(&args);

  const std::unique_ptr<fuse_session, Call<fuse_session_destroy>> session(
      fuse_session_new(&args, &kOperations, sizeof kOperations, &null));
  if (!session) return 1;
  if (fuse_session_mount(session.get(), null.options.mountpoint.c_str()) != 0) return 1;
  const std::unique_ptr<fuse_session, Call<fuse_session_unmount>> mounted(session.get());
  RaiseReadAhead(null.options);
  if (fuse_daemonize(0) != 0) return 1;

  const std::unique_ptr<fuse_loop_config, Call<fuse_loop_cfg_destroy>> config(
      fuse_loop_cfg_create());
  fuse_loop_cfg_set_max_threads(config.get(), static_cast<unsigned>(null.options.threads));
  fuse_loop_cfg_set_clone_fd(config.get(), static_cast<unsigned>(null.options.clone_fd));
  return fuse_session_loop_mt(session.get(), config.get()) == 0 ? 0 : 1;
}

int Main(std::span<const char* const> arguments) {
  try {
    Null null{.options = ParseOptions(arguments)};
    null.meta = MakeMeta(null.options);
    void* const reply =
        ::mmap(nullptr, kLargestReply, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reply == MAP_FAILED) FailErrno("cannot get {} bytes", kLargestReply);
    null.reply = static_cast<const char*>(reply);
    return Serve(std::move(null));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "null: %s\n", e.what());
    return 2;
  }
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
  return ckptfs::Main(std::span(argv, static_cast<size_t>(argc)).subspan(1));
}
