#include "parser/layer/disk_cache.h"

#include <sodium/crypto_generichash_blake2b.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/mutex.h"
#include "parser/layer/disk_cache/directory.h"
#include "parser/layer/disk_cache/segment.h"

namespace ckptfs {
namespace {

using Clock = std::chrono::steady_clock;

// The time for which writes are suspended after the disk was full or failed.
constexpr auto kPause = std::chrono::seconds(10);

// The approximate size of a segment without its blocks.
constexpr uint64_t kOverhead = 12288;

std::array<std::byte, 32> HashOfIdentity(std::string_view identity, uint64_t size) {
  std::array<std::byte, 32> hash = {};
  crypto_generichash_blake2b_state state = {};
  const auto add = [&](const void* data, size_t length) {
    ::crypto_generichash_blake2b_update(&state, static_cast<const unsigned char*>(data), length);
  };
  ::crypto_generichash_blake2b_init(&state, nullptr, 0, hash.size());
  add(&size, sizeof size);
  add(identity.data(), identity.size());
  ::crypto_generichash_blake2b_final(&state, reinterpret_cast<unsigned char*>(hash.data()),
                                     hash.size());
  return hash;
}

}  // namespace

// Segments that are open, for all objects.
class OpenSegments {
 public:
  std::shared_ptr<const Segment> Find(const SegmentId& id) {
    const MutexLock lock(mutex_);
    const auto found = places_.find(id);
    if (found == places_.end()) return nullptr;
    used_.splice(used_.begin(), used_, found->second);
    return found->second->second;
  }

  void Add(const SegmentId& id, std::shared_ptr<const Segment> segment) {
    const MutexLock lock(mutex_);
    RemoveLocked(id);
    used_.emplace_front(id, std::move(segment));
    places_.emplace(id, used_.begin());
    if (used_.size() > kMost) RemoveLocked(SegmentId(used_.back().first));
  }

  void Remove(const SegmentId& id) {
    const MutexLock lock(mutex_);
    RemoveLocked(id);
  }

  // Closes unused segments: the removed ones take disk space until then.
  void Clear() {
    Used closed;
    const MutexLock lock(mutex_);
    places_.clear();
    closed.swap(used_);
  }

 private:
  using Used = std::list<std::pair<SegmentId, std::shared_ptr<const Segment>>>;

  static constexpr size_t kMost = 64;

  void RemoveLocked(const SegmentId& id) REQUIRES(mutex_) {
    const auto found = places_.find(id);
    if (found == places_.end()) return;
    used_.erase(found->second);
    places_.erase(found);
  }

  Mutex mutex_;
  Used used_ GUARDED_BY(mutex_);  // The most recent one first.
  std::map<SegmentId, Used::iterator> places_ GUARDED_BY(mutex_);
};

// Shared by all objects of a cache.
class DiskCache::Store {
 public:
  Store(const std::string& directory, uint64_t limit)
      : directory_(directory), limit_(limit), written_(limit) {}

  // Record that an object is in use. `object` are the hexadecimal digits of its hash.
  void AddObject(const std::string& object) {
    const MutexLock lock(mutex_);
    objects_.insert(object);
  }
  void RemoveObject(const std::string& object) {
    const MutexLock lock(mutex_);
    objects_.erase(objects_.find(object));
  }

  // Returns null if the segment is missing and cannot be created, or must not be (`may_make`).
  std::shared_ptr<const Segment> Open(const SegmentId& id, bool may_make) {
    if (auto segment = open_.Find(id)) {
      if (segment->Touch()) return segment;
      open_.Remove(id);
    }
    auto opened = directory_.Open(id, may_make);
    if (!opened) return nullptr;
    auto segment = std::make_shared<const Segment>(std::move(*opened));
    segment->Touch();
    open_.Add(id, segment);
    return segment;
  }

  // Writes blocks of a segment, unless there is no room for them.
  void Write(const SegmentId& id, uint64_t first,
             std::span<const std::span<const std::byte>> blocks) {
    if (!MayWrite(blocks.size() * uint64_t{kBlockSize} + kOverhead)) return;
    const auto segment = Open(id, true);
    if (!segment || !segment->may_write()) return Pause();
    const auto error = segment->Write(first, blocks);
    if (!error) return;
    Pause();
    if (error->code() == ENOSPC || error->code() == EDQUOT) Shrink(true);
  }

 private:
  bool MayWrite(uint64_t bytes) {
    if (Clock::now().time_since_epoch().count() < paused_until_) return false;
    if (const int64_t room = directory_.room(); room < static_cast<int64_t>(bytes)) {
      Shrink(room < 0);
      if (directory_.room() < static_cast<int64_t>(bytes)) {
        Pause();
        return false;
      }
    }
    // No process writes more than a step before it checks what all of them have written.
    if (written_.fetch_add(bytes) + bytes > Step()) {
      written_ = bytes;
      if (!Shrink(false)) {
        // Together they may be at the limit already.
        written_ = limit_;
        Pause();
        return false;
      }
    }
    return true;
  }

  uint64_t Step() const { return limit_ / 20; }

  void Pause() { paused_until_ = (Clock::now() + kPause).time_since_epoch().count(); }

  // Makes room for the writes of all processes until the next check: evicts any segments if the
  // disk is full, else unprotected ones. Returns whether there is enough room.
  bool Shrink(bool is_full) {
    const auto target = [&](uint64_t used) {
      const int64_t room = directory_.room();
      uint64_t most = std::min(limit_, used + static_cast<uint64_t>(std::max<int64_t>(room, 0)));
      if (is_full) most = std::min(most, used);
      return !is_full && used + Step() <= most ? used : most - most / 10;
    };
    const time_t recently = ::time(nullptr) - kProtected;
    const auto is_protected = [&](std::string_view object, timespec used) {
      return used.tv_sec > recently && IsOpen(object);
    };
    const bool has_room =
        directory_.Shrink(target, is_full ? CacheDirectory::Keeps() : is_protected);
    open_.Clear();
    return has_room;
  }

  bool IsOpen(std::string_view object) {
    const MutexLock lock(mutex_);
    return objects_.find(object) != objects_.end();
  }

  static constexpr time_t kProtected = 3600;  // Seconds.

  const CacheDirectory directory_;
  const uint64_t limit_;
  OpenSegments open_;
  Mutex mutex_;
  std::multiset<std::string, std::less<>> objects_ GUARDED_BY(mutex_);  // Hashes of open objects.
  std::atomic<uint64_t> written_;  // Since the last check; initially such that one is due.
  std::atomic<Clock::rep> paused_until_ = Clock::time_point::min().time_since_epoch().count();
};

namespace {

// Calls `use` for each segment with some of the `count` blocks from `first` on: with its id, the
// first of these blocks, and their number.
template <typename Use>
void ForEachSegment(SegmentId id, uint64_t first, size_t count, const Use& use) {
  for (size_t done = 0; done < count;) {
    const uint64_t block = first + done;
    id.number = block / kSegmentBlocks;
    const auto here = std::min<uint64_t>(count - done, kSegmentBlocks - block % kSegmentBlocks);
    use(id, done, static_cast<size_t>(here));
    done += static_cast<size_t>(here);
  }
}

}  // namespace

class DiskCache::Object final : public DiskObject {
 public:
  Object(std::shared_ptr<Store> store, const SegmentId& id)
      : store_(std::move(store)), id_(id), name_(Hex(id.object)) {
    store_->AddObject(name_);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() override { store_->RemoveObject(name_); }

  std::vector<bool> Read(uint64_t first,
                         std::span<const std::span<std::byte>> blocks) const override {
    std::vector<uint8_t> is_cached(blocks.size());
    ForEachSegment(id_, first, blocks.size(), [&](const SegmentId& id, size_t begin, size_t count) {
      const auto segment = store_->Open(id, false);
      if (!segment) return;
      segment->Read(first + begin, blocks.subspan(begin, count),
                    std::span(is_cached).subspan(begin, count));
    });
    return {is_cached.begin(), is_cached.end()};
  }

  void Write(uint64_t first,
             std::span<const std::span<const std::byte>> blocks) const noexcept override {
    try {
      ForEachSegment(id_, first, blocks.size(),
                     [&](const SegmentId& id, size_t begin, size_t count) {
                       store_->Write(id, first + begin, blocks.subspan(begin, count));
                     });
    } catch (const std::exception&) {
      // Without memory, the blocks are not cached.
    }
  }

 private:
  const std::shared_ptr<Store> store_;
  const SegmentId id_;  // Of its first segment.
  const std::string name_;
};

DiskCache::DiskCache(const std::string& directory, uint64_t limit)
    : store_(std::make_shared<Store>(directory, limit)) {}

DiskCache::~DiskCache() = default;

DiskObjectPtr DiskCache::Open(std::string_view identity, uint64_t size) const {
  assert(!identity.empty());
  const SegmentId id = {.object = HashOfIdentity(identity, size), .object_size = size};
  return std::make_shared<Object>(store_, id);
}

}  // namespace ckptfs
