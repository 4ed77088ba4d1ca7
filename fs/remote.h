// Opens the sources of a mount, and caches those that are remote.

#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "fs/checks.h"
#include "fs/log.h"
#include "fs/options.h"
#include "parser/layer/range_cache.h"
#include "parser/open.h"

namespace ckptfs {

// Thread-safe after construction. The cache is created when a remote source is opened.
class Remote {
 public:
  // Adds local files to `readers`. All three must outlive this.
  Remote(const Options& options, Readers& readers, Log& log);
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;
  ~Remote() = default;

  // Opens a source as OpenSource does, with the options of the mount. This must outlive the result.
  Source Open(const std::string& uri);

  // The same for a sidecar, which is a file.
  ByteSourcePtr OpenFile(const std::string& uri);

  // Whether a remote source has been opened.
  bool is_used() const;

  // The number of failed requests that were retried.
  std::shared_ptr<const std::atomic<uint64_t>> retries() const { return source_options_.retries; }

  // Makes reads of remote sources fail, both blocked and later ones.
  void Stop() const;

  // Returns a sentence about the state of the cache.
  std::string Status() const;

 private:
  ByteSourcePtr Add(RemoteObjectPtr object);
  std::shared_ptr<RangeCache> Cache();
  std::shared_ptr<RangeCache> CacheIfAny() const;

  const Options& settings_;
  SourceOptions source_options_;
  const std::shared_ptr<const Verification> verification_;  // May be null.

  mutable std::mutex mutex_;
  std::shared_ptr<RangeCache> cache_;  // Null until an object is remote.
};

}  // namespace ckptfs
