// What a user may want of the sources of a checkpoint.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "parser/io/byte_source.h"
#include "parser/io/remote_object.h"

namespace ckptfs {

// Which symbolic links are followed in a local directory of a checkpoint, by which somebody else
// may have put files there that only we can read. A file that the user names may be a link in any
// case.
enum class LinkPolicy : uint8_t {
  kOwned,   // Those of the user who mounts, and those whose owner owns the target, too.
  kInside,  // Of these, those that stay in the directory, or are in the cache of Hugging Face.
  kAll,
};

struct SourceOptions {
  // Makes a source of an object, which keeps what it has fetched. Not empty where a scheme is
  // opened that is remote.
  std::function<ByteSourcePtr(RemoteObjectPtr)> cached;

  // Tells a fault of the network or of a server, or what will not be as expected: a sentence
  // without secrets. Callable from any thread; limits how often it tells. May be empty.
  std::function<void(std::string_view what)> warn;

  // How far a download is: of `total` bytes, 0 if that is not known. May be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;

  // What web servers are told that we are: "ckptfs/0.1.0".
  std::string user_agent = "ckptfs";

  // How long one fetch tries again before it fails.
  std::chrono::seconds timeout{300};

  // Fetch an object whole before it is mounted, if its server cannot serve parts of it.
  bool download = false;

  LinkPolicy links = LinkPolicy::kOwned;  // Of local directories.

  // Is told the permissions of each local file or directory that is opened, as bits of r--r--r--,
  // and its group. Callable from any thread. May be empty.
  std::function<void(mode_t permissions, gid_t group)> opened;

  std::string ca_file;     // Certificates that are trusted; empty: those of the system.
  std::string token_file;  // With a bearer token; empty: there is none.
  std::string netrc_file;  // Empty: the user's.

  // Of S3; empty or false: as the environment and the files of the AWS tools say.
  std::string s3_endpoint;  // "https://host:port".
  std::string s3_region;
  std::string s3_profile;
  bool s3_anonymous = false;       // Sign nothing.
  bool s3_requester_pays = false;  // We pay for what we fetch.
  bool s3_path_style = false;      // The bucket is in the path in any case.
};

}  // namespace ckptfs
