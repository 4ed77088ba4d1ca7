#include "fs/remote.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <utility>

#include "fs/checks.h"
#include "parser/io/location.h"
#include "parser/layer/disk_cache.h"
#include "parser/layer/verified.h"

namespace ckptfs {
namespace {

double InMiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Returns the memory of the machine or of the container, in bytes.
uint64_t MachineMemory() {
  const auto pages = static_cast<uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  uint64_t memory = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const char* path : {"/sys/fs/cgroup/memory.max",                       // Version 2.
                           "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {  // Version 1.
    uint64_t limit = 0;
    if (std::ifstream(path) >> limit) memory = std::min(memory, limit);  // "max" is no number.
  }
  return memory;
}

// Returns the default of -o memory=, in bytes.
uint64_t DefaultMemory() {
  constexpr uint64_t kLeast = uint64_t{64} << 20U;
  constexpr uint64_t kMost = uint64_t{1} << 30U;
  return std::clamp(MachineMemory() / 8, kLeast, kMost);
}

// Returns how much of -o memory= is for blocks. The rest is for buffers of connections and reads.
uint64_t MemoryOfBlocks(uint64_t memory) {
  constexpr uint64_t kMostBuffers = uint64_t{8} << 20U;
  return memory - std::min(memory / 2, kMostBuffers);
}

// Shows the progress of a download on a terminal, in one line that is overwritten.
void ShowProgress(uint64_t done, uint64_t total) {
  if (::isatty(STDERR_FILENO) == 0) return;
  if (total == 0) {
    fmt::print(stderr, "\rdownloading: {:.1f} MiB", InMiB(done));
  } else {
    const double percent = 100.0 * static_cast<double>(done) / static_cast<double>(total);
    fmt::print(stderr, "\rdownloading: {:.1f} of {:.1f} MiB, {:.0f} %", InMiB(done), InMiB(total),
               percent);
    if (done == total) fmt::print(stderr, "\n");
  }
  std::fflush(stderr);
}

}  // namespace

Remote::Remote(const Options& options, Readers& readers, Log& log)
    : settings_(options),
      source_options_(options.sources),
      verification_(VerificationFor(options.verify, log)) {
  source_options_.retries = std::make_shared<std::atomic<uint64_t>>(0);
  source_options_.warn = [&log](std::string_view what) { log.Write(Log::Level::kWarning, what); };
  source_options_.opened = [&readers](mode_t permissions, gid_t group) {
    readers.Add(permissions, group);
  };
  source_options_.progress = ShowProgress;
}

Source Remote::Open(const std::string& uri) {
  Source source = OpenSource(uri, source_options_,
                             [this](RemoteObjectPtr object) { return Add(std::move(object)); });
  // A folder has not opened an object yet, but the cache must get its memory before memory is
  // limited for parsing.
  if (const auto scheme = SchemeNameOf(uri); !scheme.empty() && scheme != "file") Cache();
  return source;
}

ByteSourcePtr Remote::OpenFile(const std::string& uri) {
  Source source = Open(uri);
  if (!source.file) Fail(EISDIR, "{}: is a directory, but a sidecar is a file", Redacted(uri));
  return std::move(source.file);
}

ByteSourcePtr Remote::Add(RemoteObjectPtr object) {
  const Hashes hashes{.crc32 = {}, .sha256 = object->sha256()};
  ByteSourcePtr source = Cache()->Add(std::move(object));
  if (!verification_ || !hashes.sha256) return source;
  const uint64_t size = source->size();
  return MakeVerified({.source = std::move(source), .offset = 0, .length = size}, hashes, {},
                      "all bytes", verification_);
}

std::shared_ptr<RangeCache> Remote::Cache() {
  const std::lock_guard lock(mutex_);
  if (cache_ == nullptr) {
    RangeCache::Settings cache = {
        .memory = MemoryOfBlocks(settings_.memory.value_or(DefaultMemory())),
        .timeout = settings_.sources.timeout,
        .open_on_disk = {},
        .disk = 0};
    if (!settings_.cache_directory.empty()) {
      const auto disk =
          std::make_shared<const DiskCache>(settings_.cache_directory, settings_.cache_size);
      cache.open_on_disk = [disk](std::string_view identity, uint64_t size) {
        return disk->Open(identity, size);
      };
      cache.disk = settings_.cache_size / 2;
    }
    cache_ = std::make_shared<RangeCache>(std::move(cache));
  }
  return cache_;
}

std::shared_ptr<RangeCache> Remote::CacheIfAny() const {
  const std::lock_guard lock(mutex_);
  return cache_;
}

bool Remote::is_used() const { return CacheIfAny() != nullptr; }

void Remote::Stop() const {
  if (const auto cache = CacheIfAny()) cache->Stop();
}

std::string Remote::Status() const {
  const auto cache = CacheIfAny();
  if (cache == nullptr) return "nothing is remote";
  const RangeCache::Stats stats = cache->stats();
  return fmt::format(
      "cache: {:.1f} of {:.1f} MiB in use, {:.1f} MiB being fetched by {} requests, {} readers "
      "waiting; so far {} bytes fetched, {} from the disk, {} read",
      InMiB(stats.used), InMiB(stats.memory), InMiB(stats.busy), stats.fetches, stats.waiting,
      stats.fetched, stats.from_disk, stats.read);
}

}  // namespace ckptfs
