#include "parser/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/io/location.h"
#include "parser/scheme.h"

namespace ckptfs {
namespace {

// An object with parts. The cache fetches larger ranges than are read, so a missing part makes
// reads of its neighbours fail: these are then repeated part by part, each as an object of its own.
class PartedSource final : public ForwardingSource {
 public:
  PartedSource(RemoteObjectPtr object, CacheObject cache)
      : ForwardingSource(cache(object)), object_(std::move(object)), cache_(std::move(cache)) {}

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    try {
      return ForwardingSource::ReadAt(offset, buffer);
    } catch (const Error& e) {
      if ((e.code() != EIO && e.code() != ESTALE) || !object_->has_lost_parts()) throw;
    }
    while (!buffer.empty()) {
      const RemoteObject::Part part = object_->FindPart(offset);
      const uint64_t begin = offset - part.offset;
      const auto count =
          static_cast<size_t>(std::min<uint64_t>(buffer.size(), part.object->size() - begin));
      SourceOf(part)->ReadAt(begin, buffer.first(count));
      offset += count;
      buffer = buffer.subspan(count);
    }
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    return source().TryReadAt(offset, buffer);
  }

  // Piece by piece, since each may be in another part.
  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    // NOLINTNEXTLINE(bugprone-parent-virtual-call): not as a whole.
    ByteSource::ReadPiecesAt(offset, stride, length, buffer);
  }

 private:
  ByteSourcePtr SourceOf(const RemoteObject::Part& part) const {
    const MutexLock lock(mutex_);
    ByteSourcePtr& source = parts_[part.offset];
    if (source == nullptr) source = cache_(part.object);
    return source;
  }

  const RemoteObjectPtr object_;
  const CacheObject cache_;
  mutable Mutex mutex_;
  // By offset: those that have been needed.
  mutable std::map<uint64_t, ByteSourcePtr> parts_ GUARDED_BY(mutex_);
};

ByteSourcePtr MakeCached(RemoteObjectPtr object, const CacheObject& cache) {
  if (object->has_parts()) return std::make_shared<PartedSource>(std::move(object), cache);
  return cache(std::move(object));
}

// A remote folder whose files are cached.
class CachedFolder final : public Folder {
 public:
  CachedFolder(RemoteFolderPtr folder, CacheObject cache)
      : folder_(std::move(folder)), cache_(std::move(cache)) {}

  std::string name() const override { return folder_->name(); }
  std::vector<std::string> List() const override { return folder_->List(); }
  std::vector<std::string> ListFolders() const override { return folder_->ListFolders(); }
  bool is_remote() const override { return true; }
  bool is_immutable() const override { return folder_->is_immutable(); }
  void ForgetListing() const override { folder_->ForgetListing(); }

  ByteSourcePtr Open(const std::string& name) const override {
    return MakeCached(folder_->Open(name), cache_);
  }
  ByteSourcePtr OpenData(const std::string& name) const override {
    return MakeCached(folder_->OpenData(name), cache_);
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    RemoteFolderPtr folder = folder_->OpenFolder(name);
    return folder ? std::make_shared<CachedFolder>(std::move(folder), cache_) : nullptr;
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    return folder_->Find(name);
  }

 private:
  const RemoteFolderPtr folder_;
  const CacheObject cache_;
};

Source MakeCached(RemoteSource source, const CacheObject& cache) {
  Source cached;
  if (source.object) cached.file = MakeCached(std::move(source.object), cache);
  if (source.folder)
    cached.folder = std::make_shared<CachedFolder>(std::move(source.folder), cache);
  cached.file_name = std::move(source.file_name);
  return cached;
}

const Scheme& SchemeOf(const Location& location) {
  const std::string name = location.scheme.empty() ? "file" : location.scheme;
  std::string known;
  for (const Scheme* scheme : Schemes()) {
    if (std::ranges::count(scheme->names, name) != 0) return *scheme;
    for (const std::string_view other : scheme->names) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", other);
    }
  }
  Fail(ENOTSUP, "unsupported URI scheme {} (supported: {}; a file of that name is ./{})",
       Quoted(name), known, Redacted(location.text));
}

// Opening may take many requests: redirects, credentials, pages of a listing. Each may take
// options.timeout, all of them together twice that; a download extends the limit by its progress.
Source OpenWithDeadline(const std::string& uri, SourceOptions options, const CacheObject& cache) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kSlowestDownload = 16 << 10;  // Bytes per second.
  const auto allowed = 2 * options.timeout;
  const Clock::time_point start = Clock::now();
  const auto downloaded = std::make_shared<std::atomic<uint64_t>>(0);
  options.progress = [downloaded, progress = std::move(options.progress)](uint64_t done,
                                                                          uint64_t total) {
    *downloaded = done;
    if (progress) progress(done, total);
  };
  const Cancellation::IsCancelled is_late = [&] {
    return Clock::now() - start > allowed + std::chrono::seconds(*downloaded / kSlowestDownload);
  };
  const Cancellation cancellation(is_late);
  try {
    const Location location = ParseLocation(uri);
    SchemeSource source = SchemeOf(location).open(location, options);
    if (auto* const local = std::get_if<Source>(&source)) return std::move(*local);
    return MakeCached(std::get<RemoteSource>(std::move(source)), cache);
  } catch (const Error& e) {
    if ((e.code() != ECANCELED && e.code() != EINTR) || !is_late()) throw;
    Fail(ETIMEDOUT, "opening timed out after {} s, twice the timeout", allowed.count());
  }
}

}  // namespace

Source OpenSource(const std::string& uri, const SourceOptions& options,
                  const CacheObject& cache) try {
  return OpenWithDeadline(uri, options, cache);
} catch (const Error& e) {
  throw WithContext(Redacted(uri), e);
}

}  // namespace ckptfs
