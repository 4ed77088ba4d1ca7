// The command line: options and exit codes.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "parser/io/source_options.h"

namespace ckptfs {

// How -o verify= treats bytes that have hashes in the checkpoint.
enum class Verify : uint8_t {
  kOff,      // No verification.
  kWarn,     // Verify what is read and log the result.
  kEnforce,  // Reads of corrupt bytes fail, too.
};

// Whether a directory is mounted as a store (store.h).
enum class StoreMode : uint8_t {
  kIfNeeded,  // If it is not one checkpoint.
  kAlways,
  kTrees,  // Always, and without the files.
};

// Files that show the same checkpoint in other formats.
struct Views {
  bool safetensors = false;  // One of the whole checkpoint.
  bool npy = false;          // One of each tensor.
};

struct Options {
  std::string source;
  std::string mountpoint;
  bool unmount = false;  // -u: there is no source, and `mountpoint` is unmounted.
  bool help = false;
  bool version = false;
  bool foreground = false;  // -f
  bool debug = false;       // -d: foreground too, and every request of the kernel is logged.
  bool is_fake = false;     // mount.ckptfs -f: do everything except mount.
  bool no_fail = false;     // nofail: an unavailable source is not a failure.
  bool allow_other = false;
  bool auto_unmount = false;
  bool nonempty = false;      // Mount over a directory with files, or over another mount.
  bool follow_links = false;  // Follow all links in a local directory.
  bool strict = false;        // Do not mount if a tensor is corrupt or missing.
  bool flat = false;          // Do not split keys at dots.
  bool xattr = false;         // Extended attributes on tensor files.
  std::optional<uid_t> uid;   // Owner of all files; by default, the user that mounts.
  std::optional<gid_t> gid;
  std::optional<mode_t> umask;  // Removed from r-xr-xr-x; else by the files.
  Verify verify = Verify::kOff;
  std::string key_file;         // With the key of an encrypted checkpoint, ...
  std::string passphrase_file;  // ... or with its passphrase; may be empty.
  std::string log_file;         // Instead of syslog; may be empty.
  std::string sidecar;          // The file with its tensors; empty: beside the checkpoint.

  std::optional<Views> view;  // Nothing: safetensors of a model repository.
  bool companions = true;     // Show the other files of the folder that is a checkpoint.
  std::string subtree;        // Keys with slashes: show that part alone; empty: all.

  StoreMode store = StoreMode::kIfNeeded;
  uint64_t trees = uint64_t{256} << 20U;  // For parsed checkpoints of a store, in bytes.
  std::chrono::seconds refresh{60};       // Interval at which a store lists a remote folder.

  std::optional<uint64_t> scratch;  // For decoded data on disk, in bytes.

  // Of remote checkpoints.
  std::optional<uint64_t> memory;             // Of the cache, in bytes.
  std::string cache_directory;                // Of the cache on disk; empty: none.
  uint64_t cache_size = uint64_t{10} << 30U;  // Of that, in bytes.
  SourceOptions sources;                      // Except the functions.
};

// Exit codes, by the kind of error.
enum class ExitCode : int {
  kMounted = 0,
  kUnexpected = 1,
  kUsage = 2,
  kSource = 3,
  kNoCheckpoint = 4,
  kCorrupt = 5,
  kTooLarge = 6,
  kMountpoint = 7,
  kFuse = 8,
};

// `program` is the name of the program: "mount.ckptfs" takes the options of a mount helper, see
// mount(8). `arguments` are those after it. Throws Error(EINVAL).
Options ParseOptions(const std::string& program, std::span<const char* const> arguments);

// Whether `text` is a list like that of -o and not the name of a file: it has a '=', or begins with
// the name of an option.
bool IsOptionList(std::string_view text);

// Sets the options of a list like that of -o, "timeout=10,no_sign": those that IsForSources. Throws
// Error(EINVAL).
void SetSourceOptions(Options& options, std::string_view list);

// The text of --help, made from the tables that ParseOptions reads.
std::string Usage();

// Returns `text` as one word in a list of mount options: commas and backslashes escaped.
std::string EscapedOption(std::string_view text);

// Returns the last name in `source`, a path or a URI, without what formats and compressors append
// to names, and without the number of a part of a gguf: "model" for
// "/data/model.safetensors.index.json" and "/data/model-00001-of-00003.gguf". URIs of files and of
// web servers are percent-decoded. Throws Error(EINVAL) if no name is left.
std::string DefaultMountpoint(const std::string& source);

// Throws Error(EINVAL) if `source` must be the mount point and `mountpoint` the checkpoint, because
// they make no sense otherwise.
void CheckOrder(const std::string& source, const std::string& mountpoint);

}  // namespace ckptfs
