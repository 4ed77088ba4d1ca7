// Options for opening the sources of a checkpoint.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ckptfs {

// Which symbolic links are followed in a local directory of a checkpoint, where another user may
// have placed links to files that only the mounting user can read. The path that the user specifies
// may always be a link.
enum class LinkPolicy : uint8_t {
  kOwned,   // Those of the mounting user, and those whose owner also owns the target.
  kInside,  // Of these, those that stay in the directory, or are in the cache of Hugging Face.
  kAll,
};

struct SourceOptions {
  // Logs a network or server error, or a degraded service: a sentence without secrets. Callable
  // from any thread; rate-limited. May be empty.
  std::function<void(std::string_view what)> warn;

  // Counts the failed attempts that are retried, of all sources. May be null.
  std::shared_ptr<std::atomic<uint64_t>> retries;

  // Reports the progress of a download; `total` is 0 if it is unknown. May be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;

  // The User-Agent header: "ckptfs/0.1.0".
  std::string user_agent = "ckptfs";

  // The time for which a fetch is retried.
  std::chrono::seconds timeout{300};

  // Fetch a whole object before it is mounted, if its server does not support ranges.
  bool download = false;

  LinkPolicy links = LinkPolicy::kOwned;  // Of local directories.

  // Called with the permissions of each local file or directory that is opened, as bits of
  // r--r--r--, and its group. Callable from any thread. May be empty.
  std::function<void(mode_t permissions, gid_t group)> opened;

  std::string ca_file;     // Trusted certificates; empty: those of the system.
  std::string token_file;  // With a bearer token; empty: without one.
  std::string netrc_file;  // Empty: the user's.

  // Of S3; empty or false: from the environment and the files of the AWS tools.
  std::string s3_endpoint;  // "https://host:port".
  std::string s3_region;
  std::string s3_profile;
  bool s3_anonymous = false;       // Send unsigned requests.
  bool s3_requester_pays = false;  // Agree to pay for reads.
  bool s3_path_style = false;      // Always put the bucket into the path.
};

}  // namespace ckptfs
