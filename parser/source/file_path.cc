// Paths are resolved here and not by openat2(2), which supports neither the rule about owners nor
// the exception for the cache of Hugging Face.

#include "parser/source/file_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/source/http/url.h"

namespace ckptfs::file {
namespace {

constexpr size_t kMostLinks = 40;  // As in the kernel.

struct stat StatOf(const Fd& fd) {
  struct stat st = {};
  if (::fstat(fd.number(), &st) < 0) FailErrno("cannot stat");
  return st;
}

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Never follows a link.
Fd OpenStep(const Fd& directory, const std::string& name, int flags = 0) {
  return Fd(::openat(directory.number(), name.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW | flags));
}

std::string ReadLink(const Fd& link) {
  std::array<char, PATH_MAX> text = {};
  const ssize_t n = ::readlinkat(link.number(), "", text.data(), text.size());
  if (n < 0) FailErrno("cannot read the symbolic link");
  return {text.data(), static_cast<size_t>(n)};
}

// Takes the first component off `path`; empty if none is left.
std::string TakeComponent(std::string& path) {
  const size_t begin = std::min(path.find_first_not_of('/'), path.size());
  const size_t end = std::min(path.find('/', begin), path.size());
  std::string component = path.substr(begin, end - begin);
  path.erase(0, end);
  return component;
}

[[noreturn]] void FailRefused(std::string_view why) {
  Fail(EACCES, "symbolic link not followed: it {}; to follow it, use -o follow_links", why);
}

// Opens the blob that a link in the cache of Hugging Face points to: "../../blobs/NAME" in a
// directory "snapshots/REVISION", with one more ".." for each level below that. Returns no
// descriptor if `text` in `directory` is not such a link.
Fd OpenBlob(const Fd& directory, std::string_view text) {
  constexpr std::string_view kUp = "../";
  constexpr std::string_view kBlobs = "blobs/";
  size_t levels = 0;
  for (; text.starts_with(kUp); ++levels) text.remove_prefix(kUp.size());
  if (levels < 2 || !text.starts_with(kBlobs)) return Fd();
  const std::string name(text.substr(kBlobs.size()));
  if (name.empty() || name.find('/') != std::string::npos || name == "..") return Fd();
  Fd below = OpenStep(directory, ".", O_DIRECTORY);
  Fd above = OpenStep(below, "..", O_DIRECTORY);
  for (size_t level = 1; level < levels && above.number() >= 0; ++level) {
    below = std::move(above);
    above = OpenStep(below, "..", O_DIRECTORY);
  }
  const Fd snapshots = OpenStep(above, "snapshots", O_DIRECTORY);
  if (snapshots.number() < 0 || !IsSame(StatOf(snapshots), StatOf(below))) return Fd();
  const Fd blobs = OpenStep(above, "blobs", O_DIRECTORY);
  Fd blob = OpenStep(blobs, name);
  return blob.number() >= 0 && S_ISREG(StatOf(blob).st_mode) ? std::move(blob) : Fd();
}

class Walk {
 public:
  Walk(const Fd& root, LinkPolicy policy) : policy_(policy), root_(StatOf(root)) {
    Push(OpenStep(root, ".", O_DIRECTORY));
  }

  Fd Open(std::string path) {
    while (true) {
      const std::string name = TakeComponent(path);
      if (name.empty() || name == ".") {
        if (path.find_first_not_of('/') == std::string::npos) Fail(EISDIR, "is a directory");
        continue;
      }
      if (name == "..") {
        Pop();
        continue;
      }
      Fd step = OpenStep(stack_.back(), name);
      if (step.number() < 0) FailErrno("cannot open");
      const struct stat st = StatOf(step);
      if (S_ISLNK(st.st_mode)) {
        std::string text = ReadLink(step);
        AddLink(st.st_uid);
        if (policy_ == LinkPolicy::kInside && path.empty()) {
          Fd blob = OpenBlob(stack_.back(), text);
          if (blob.number() >= 0) return Checked(std::move(blob), true);
        }
        if (text.starts_with('/')) Restart();
        path.insert(0, text);
      } else if (!path.empty() && S_ISDIR(st.st_mode)) {
        Push(std::move(step));
      } else if (!path.empty()) {
        Fail(ENOTDIR, "cannot open: {}", ErrnoText(ENOTDIR));
      } else {
        return Checked(std::move(step), is_inside_);
      }
    }
  }

 private:
  struct Link {
    uid_t owner = 0;
    bool is_inside = true;  // Below the root, where others may have write permission.
  };

  void Push(Fd directory) {
    if (directory.number() < 0) FailErrno("cannot open");
    if (!is_inside_ && IsSame(StatOf(directory), root_)) {
      stack_.clear();
      is_inside_ = true;
    }
    stack_.push_back(std::move(directory));
  }

  // Below the root, ".." is the directory that the last step started from: that of a directory that
  // is moved meanwhile changes.
  void Pop() {
    if (is_inside_ && stack_.size() > 1) {
      stack_.pop_back();
      return;
    }
    is_inside_ = false;
    Push(OpenStep(stack_.back(), "..", O_DIRECTORY));
  }

  void Restart() {
    is_inside_ = false;
    Push(Fd(::open("/", O_PATH | O_CLOEXEC | O_DIRECTORY)));
  }

  void AddLink(uid_t owner) {
    links_.push_back({.owner = owner, .is_inside = is_inside_});
    if (links_.size() > kMostLinks) Fail(ELOOP, "cannot open: {}", ErrnoText(ELOOP));
  }

  // Links of the system, such as /var/run, belong to root.
  Fd Checked(Fd target, bool is_inside) const {
    if (policy_ == LinkPolicy::kAll || links_.empty()) return target;
    const uid_t mounter = ::geteuid();
    const uid_t owner = StatOf(target).st_uid;
    for (const Link& link : links_) {
      const bool is_trusted =
          link.owner == mounter || link.owner == owner || (!link.is_inside && link.owner == 0);
      if (!is_trusted)
        FailRefused("belongs neither to the mounting user nor to the owner of its target");
    }
    if (policy_ == LinkPolicy::kInside && !is_inside) {
      FailRefused("leads out of the checkpoint's directory, which allow_other does not permit");
    }
    return target;
  }

  const LinkPolicy policy_;
  const struct stat root_;
  bool is_inside_ = true;
  std::vector<Fd> stack_;  // Inside: the directories from the root on; outside, the last counts.
  std::vector<Link> links_;
};

}  // namespace

Fd OpenPath(const Fd& root, const std::string& path, LinkPolicy policy) {
  return Walk(root, policy).Open(path);
}

Fd OpenForReading(const Fd& path) {
  const struct stat st = StatOf(path);
  if (S_ISDIR(st.st_mode)) Fail(EISDIR, "is a directory");
  if (!S_ISREG(st.st_mode)) Fail(EINVAL, "not a regular file");
  // O_NONBLOCK: do not wait for a lease on the file.
  Fd file(::open(fmt::format("/proc/self/fd/{}", path.number()).c_str(),
                 O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.number() >= 0) return file;
  const int error = errno;
  if (error == ENOENT && ::access("/proc/self/fd", F_OK) != 0) {
    Fail(ENOENT, "cannot open: /proc is not mounted");
  }
  Fail(error, "cannot open: {}", ErrnoText(error));
}

std::string PathOf(const Location& location) {
  if (location.scheme.empty()) return location.text;
  const std::string& host = location.authority;
  if (location.path.empty() || host == "." || host == "..") {
    Fail(EINVAL,
         "relative path in a file URI (expected an absolute one, as in file:///dir/model.pth)");
  }
  if (!host.empty() && !http::IsLocalhost(host)) {
    Fail(
        EINVAL,
        "unsupported host in a file URI (expected none or localhost, as in file:///dir/model.pth)");
  }
  std::string path = PercentDecode(location.path);
  if (path.find('\0') != std::string::npos) Fail(EINVAL, "the path contains a NUL");
  return path;
}

}  // namespace ckptfs::file
