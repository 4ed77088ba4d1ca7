// What a mount needs of networks: the cache of remote bytes, made when the first is wanted.

#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "fs/log.h"
#include "fs/options.h"
#include "fs/strict.h"
#include "parser/io/source_options.h"
#include "parser/layer/range_cache.h"

namespace ckptfs {

// Thread-safe once it is made.
class Remote {
 public:
  // Adds local files to `readers`. All three must outlive this and all sources that are opened with options().
  Remote(const Options& options, Readers& readers, Log& log);
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;
  ~Remote() = default;

  // To open sources with.
  const SourceOptions& options() const { return source_options_; }

  // Whether a source has been opened that is remote.
  bool is_used() const;

  // Makes reads of remote bytes fail, those that wait and those to come.
  void Stop() const;

  // A sentence about what the cache is doing.
  std::string Status() const;

 private:
  std::shared_ptr<RangeCache> Cache();
  std::shared_ptr<RangeCache> CacheIfAny() const;

  const Options& settings_;
  SourceOptions source_options_;

  mutable std::mutex mutex_;
  std::shared_ptr<RangeCache> cache_;  // Null as long as nothing is remote.
};

}  // namespace ckptfs
