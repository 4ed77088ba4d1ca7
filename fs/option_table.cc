#include "fs/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr size_t kLongest = 64;

std::string Normalized(std::string_view word) {
  std::string text(word);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return text;
}

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  if (a.size() > kLongest || b.size() > kLongest) return kLongest + 1;
  // Rows of the table for prefixes of `a`: of the one before, of the last one, and of this one.
  std::array<std::array<size_t, kLongest + 1>, 3> rows = {};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& last = rows[(i + 2) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], rows[(i + 1) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known) {
  const std::string normal = Normalized(word);
  // A third of the letters may differ; a prefix of a word counts as near.
  constexpr size_t kShortestBeginning = 3;
  size_t least = normal.size() / 3 + 1;
  std::string_view nearest;
  for (const std::string_view candidate : known) {
    const bool is_beginning = normal.size() >= kShortestBeginning && candidate.starts_with(normal);
    const size_t distance = is_beginning ? std::min<size_t>(1, candidate.size() - normal.size())
                                         : EditDistance(normal, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

namespace {

constexpr Switch kProgramSwitches[] = {
    {'f', "", "stay in the foreground and log to standard error", &Options::foreground},
    {'d', "", "stay in the foreground and log every FUSE request", &Options::debug},
    {'u', "", "unmount: ckptfs -u MOUNTPOINT", &Options::unmount},
    {'h', "help", "print this help and exit", &Options::help},
    {'V', "version", "print the version and exit", &Options::version},
    {'s', "", "", nullptr},
};

constexpr Switch kHelperSwitches[] = {
    {'f', "", "", &Options::is_fake},
    {'h', "help", "", &Options::help},
    {'V', "version", "", &Options::version},
    {'s', "", "", nullptr},
    {'n', "", "", nullptr},
    {'v', "", "", nullptr},
};

// A member of the options, or of their options for sources.
template <typename T>
T& MemberOf(Options& options, T Options::*member) {
  return options.*member;
}
template <typename T>
T& MemberOf(Options& options, T SourceOptions::*member) {
  return options.sources.*member;
}

template <auto kMember>
void SetFlag(Options& options, std::string_view, std::string_view) {
  MemberOf(options, kMember) = true;
}

template <auto kMember>
void SetText(Options& options, std::string_view, std::string_view value) {
  MemberOf(options, kMember) = value;
}

template <auto kMember, uint32_t kMost, int kBase = 10>
void SetNumber(Options& options, std::string_view option, std::string_view value) {
  const auto number = ParseNumber<uint32_t>(value, kBase);
  if (!number || *number > kMost) {
    constexpr bool kIsOctal = kBase == 8;
    Fail(EINVAL, "option {}: invalid number {} (expected {}0 to {})", option, Quoted(value),
         kIsOctal ? "octal " : "", kIsOctal ? fmt::format("{:o}", kMost) : fmt::to_string(kMost));
  }
  auto& member = MemberOf(options, kMember);
  member = std::remove_reference_t<decltype(member)>(*number);
}

// Bytes: a number, optionally followed by k, m, g or t.
template <auto kMember, uint64_t kLeast>
void SetSize(Options& options, std::string_view option, std::string_view value) {
  constexpr std::string_view kUnits = "kmgt";
  const size_t unit = value.empty() ? std::string_view::npos : kUnits.find(ToLower(value.back()));
  const bool has_unit = unit != std::string_view::npos;
  const unsigned shift = has_unit ? 10 * (static_cast<unsigned>(unit) + 1) : 0;
  const auto number = ParseNumber<uint64_t>(value.substr(0, value.size() - (has_unit ? 1 : 0)));
  constexpr uint64_t kMost = uint64_t{1} << 50U;
  if (!number || *number > (kMost >> shift) || (*number << shift) < kLeast) {
    Fail(EINVAL, "option {}: invalid size {} (expected {}m or more, such as 512m or 2g)", option,
         Quoted(value), kLeast >> 20U);
  }
  MemberOf(options, kMember) = *number << shift;
}

void SetVerify(Options& options, std::string_view option, std::string_view value) {
  constexpr std::pair<std::string_view, Verify> kWords[] = {
      {"off", Verify::kOff}, {"warn", Verify::kWarn}, {"enforce", Verify::kEnforce}};
  const auto found = std::ranges::find(kWords, value, &std::pair<std::string_view, Verify>::first);
  if (found == std::end(kWords)) {
    Fail(EINVAL, "option {}: invalid value {} (expected off, warn or enforce)", option,
         Quoted(value));
  }
  options.verify = found->second;
}

void SetStore(Options& options, std::string_view option, std::string_view value) {
  if (!value.empty() && value != "trees") {
    Fail(EINVAL, "option {}: invalid value {} (expected trees, or none)", option, Quoted(value));
  }
  options.store = value.empty() ? StoreMode::kAlways : StoreMode::kTrees;
}

// A list with ':', because commas separate options.
void SetView(Options& options, std::string_view option, std::string_view value) {
  Views views;
  for (std::string_view rest = value; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const std::string_view word = rest.substr(0, colon);
    rest.remove_prefix(std::min(colon + 1, rest.size()));
    if (word == "safetensors") {
      views.safetensors = true;
    } else if (word == "npy") {
      views.npy = true;
    } else if (word != "none" || value != "none") {
      Fail(EINVAL,
           "option {}: invalid value {} (expected safetensors, npy, both with a colon, or none)",
           option, Quoted(value));
    }
  }
  options.view = views;
}

void SetCompanions(Options& options, std::string_view option, std::string_view value) {
  if (value != "on" && value != "off") {
    Fail(EINVAL, "option {}: invalid value {} (expected on or off)", option, Quoted(value));
  }
  options.companions = value == "on";
}

constexpr uint64_t MiB(uint64_t count) { return count << 20U; }
constexpr uint32_t kMostId = std::numeric_limits<uint32_t>::max() - 1;  // -1 is no id.
constexpr uint32_t kWeek = 7 * 24 * 3600;

constexpr std::string_view kView = "contents of the mount";
constexpr std::string_view kStores = "directories of many checkpoints";
constexpr std::string_view kMount = "mount";
constexpr std::string_view kSecrets = "encryption and hashes";
constexpr std::string_view kRemote = "remote checkpoints";
constexpr std::string_view kWeb = "web servers";
constexpr std::string_view kS3 = "S3";

constexpr MountOption kMountOptions[] = {
    {"flat", "", kView, "keep dotted keys whole, without directories", SetFlag<&Options::flat>},
    {"xattr", "", kView, "extended attributes: dtype, shape, offset, ...",
     SetFlag<&Options::xattr>},
    {"strict", "", kView, "refuse a checkpoint with a corrupt or missing tensor",
     SetFlag<&Options::strict>},
    {"sidecar", "FILE", kView, "the tensors of a tensorizer.torch_compat checkpoint",
     SetText<&Options::sidecar>},

    {"subtree", "KEYS", kView, "only the dict of these keys, with slashes between",
     SetText<&Options::subtree>},
    {"view", "FORMAT:...", kView, "also as safetensors, npy, or none", SetView},
    {"companions", "HOW", kView, "the other files of a folder: on or off", SetCompanions},

    {"store", "[=trees]", kStores, "mirror the folder; a directory X.d per checkpoint", SetStore},
    {"trees", "SIZE", kStores, "cap of parsed checkpoints in a store, 256m by default",
     SetSize<&Options::trees, MiB(1)>},
    {"refresh", "SECONDS", kStores, "until a remote folder is listed again (60)",
     SetNumber<&Options::refresh, kWeek>},

    {"follow_links", "", kMount, "follow links that others made or that lead outside",
     SetFlag<&Options::follow_links>},
    {"allow_other", "", kMount, "let other users read the mount", SetFlag<&Options::allow_other>},
    {"uid", "N", kMount, "owner of all files", SetNumber<&Options::uid, kMostId>},
    {"gid", "N", kMount, "group of all files", SetNumber<&Options::gid, kMostId>},
    {"umask", "OCTAL", kMount, "permissions to take away (default: the checkpoint's)",
     SetNumber<&Options::umask, 0777, 8>},
    {"auto_unmount", "", kMount, "unmount even if the daemon is killed",
     SetFlag<&Options::auto_unmount>},
    {"nonempty", "", kMount, "mount over files or over another mount", SetFlag<&Options::nonempty>},
    {"scratch", "SIZE", kMount, "cap of temporary files, at most 4g by default",
     SetSize<&Options::scratch, 0>},
    {"nofail", "", kMount, "exit with 0 if the checkpoint is not available",
     SetFlag<&Options::no_fail>},
    {"logfile", "FILE", kMount, "append the log to a file, instead of syslog",
     SetText<&Options::log_file>},
    {"debug", "", kMount, "the same as -d", SetFlag<&Options::debug>},

    {"key_file", "FILE", kSecrets, "the key of an encrypted checkpoint: 32 bytes",
     SetText<&Options::key_file>},
    {"passphrase_file", "FILE", kSecrets, "the passphrase of an encrypted checkpoint",
     SetText<&Options::passphrase_file>},
    {"verify", "HOW", kSecrets, "check hashes while reading: off, warn or enforce", SetVerify},

    {"memory", "SIZE", kRemote, "cap of the memory cache, at most 1g by default",
     SetSize<&Options::memory, MiB(8)>},
    {"cache_dir", "DIR", kRemote, "cache on disk, kept for the next mount",
     SetText<&Options::cache_directory>},
    {"cache_size", "SIZE", kRemote, "cap of the cache on disk, 10g by default",
     SetSize<&Options::cache_size, MiB(64)>},
    {"timeout", "SECONDS", kRemote, "how long a read is retried, 300 by default",
     SetNumber<&SourceOptions::timeout, kWeek>},
    {"download", "", kRemote, "download first if the server has no ranges",
     SetFlag<&SourceOptions::download>},

    {"cacert", "FILE", kWeb, "trusted certificates", SetText<&SourceOptions::ca_file>},
    {"token_file", "FILE", kWeb, "a bearer token", SetText<&SourceOptions::token_file>},
    {"netrc", "FILE", kWeb, "users and passwords, instead of ~/.netrc",
     SetText<&SourceOptions::netrc_file>},

    {"endpoint", "URL", kS3, "the server, if it is not AWS", SetText<&SourceOptions::s3_endpoint>},
    {"region", "NAME", kS3, "the region of the bucket", SetText<&SourceOptions::s3_region>},
    {"profile", "NAME", kS3, "a profile in the files of the AWS tools",
     SetText<&SourceOptions::s3_profile>},
    {"path_style", "", kS3, "put the bucket into the path", SetFlag<&SourceOptions::s3_path_style>},
    {"no_sign", "", kS3, "send unsigned requests", SetFlag<&SourceOptions::s3_anonymous>},
    {"requester_pays", "", kS3, "agree to pay for requests",
     SetFlag<&SourceOptions::s3_requester_pays>},
};

// The mount is read-only, without devices and set-user-ID, and the kernel checks permissions and
// caches everything indefinitely in any case. -o x-* and X-* are ignored, too.
constexpr std::string_view kIgnored[] = {
    // mount(8) and fstab(5).
    "ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async", "dirsync",
    "atime", "noatime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime",
    "nostrictatime", "lazytime", "nolazytime", "iversion", "noiversion", "mand", "nomand",
    "symfollow", "nosymfollow", "silent", "loud", "defaults", "auto", "noauto", "user", "nouser",
    "users", "nousers", "owner", "noowner", "group", "nogroup", "_netdev", "comment",
    // fuse(8) and the options of libfuse.
    "fsname", "subtype", "default_permissions", "kernel_cache", "auto_cache", "noauto_cache",
    "entry_timeout", "attr_timeout", "ac_attr_timeout", "negative_timeout", "noforget", "remember",
    "max_read", "max_write", "max_readahead", "max_background", "congestion_threshold",
    "async_read", "sync_read", "big_writes", "large_read", "writeback_cache", "atomic_o_trunc",
    "hard_remove", "use_ino", "readdir_ino", "intr", "nointr", "intr_signal", "clone_fd",
    "max_threads", "max_idle_threads", "splice_read", "no_splice_read", "splice_write",
    "no_splice_write", "splice_move", "no_splice_move", "no_remote_lock", "no_remote_flock",
    "no_remote_posix_lock",
    // Other FUSE programs.
    "readonly", "read_only"};

// Options of other FUSE programs that are rejected, because ignoring them would be a surprise.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"direct_io", "not supported: mmap needs the page cache"},
    {"allow_root", "not supported: use allow_other, and umask for permissions"},
    {"fmask", "not supported: use umask"},
    {"dmask", "not supported: use umask"},
};

constexpr ExitStatus kExitStatuses[] = {
    {ExitCode::kMounted, "mounted"},
    {ExitCode::kUnexpected, "an unexpected error, such as lack of memory"},
    {ExitCode::kUsage, "the command line is wrong"},
    {ExitCode::kSource, "the checkpoint cannot be opened or read"},
    {ExitCode::kNoCheckpoint, "it is not a checkpoint in a format that ckptfs knows"},
    {ExitCode::kCorrupt, "the checkpoint is corrupt"},
    {ExitCode::kTooLarge, "the checkpoint exceeds a limit"},
    {ExitCode::kMountpoint, "the mount point cannot be used"},
    {ExitCode::kFuse, "FUSE is not available, or the mount is not permitted"},
};

}  // namespace

std::span<const Switch> ProgramSwitches() { return kProgramSwitches; }

std::span<const Switch> HelperSwitches() { return kHelperSwitches; }

std::span<const MountOption> MountOptions() { return kMountOptions; }

const MountOption* FindMountOption(std::string_view name) {
  const auto* const found = std::ranges::find(kMountOptions, name, &MountOption::name);
  return found == std::end(kMountOptions) ? nullptr : found;
}

bool IsForSources(const MountOption& option) {
  constexpr std::string_view kGroups[] = {kSecrets, kRemote, kWeb, kS3};
  constexpr std::string_view kNames[] = {"follow_links", "scratch", "sidecar", "strict", "subtree"};
  return std::ranges::find(kGroups, option.group) != std::end(kGroups) ||
         std::ranges::find(kNames, option.name) != std::end(kNames);
}

bool IsIgnored(std::string_view name) {
  return name.starts_with("x-") || name.starts_with("X-") || std::ranges::count(kIgnored, name) > 0;
}

std::string_view WhyRefused(std::string_view name) {
  const auto found =
      std::ranges::find(kRefused, name, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kRefused) ? std::string_view() : found->second;
}

std::string_view NearestMountOption(std::string_view name) {
  std::vector<std::string_view> names;
  for (const MountOption& option : kMountOptions) names.push_back(option.name);
  names.insert(names.end(), std::begin(kIgnored), std::end(kIgnored));
  return NearestWord(name, names);
}

std::span<const ExitStatus> ExitStatuses() { return kExitStatuses; }

}  // namespace ckptfs
