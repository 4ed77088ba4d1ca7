#include "parser/source/redis/parts_source.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::redis {
namespace {

// One part of an object.
class PartObject final : public RemoteObject {
 public:
  PartObject(std::shared_ptr<const Object> whole, const KeyTable::Part& part)
      : whole_(std::move(whole)), part_(part) {}

  std::string name() const override { return whole_->name(); }
  uint64_t size() const override { return part_.length; }
  std::string identity() const override { return ""; }

  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& stop) const override {
    whole_->Fetch(part_.offset + offset, length, delivery, stop);
  }

 private:
  const std::shared_ptr<const Object> whole_;
  const KeyTable::Part part_;
};

class PartsSource final : public ByteSource {
 public:
  PartsSource(std::shared_ptr<const Object> object,
              std::function<ByteSourcePtr(RemoteObjectPtr)> cached)
      : object_(std::move(object)), cached_(std::move(cached)), whole_(cached_(object_)) {}

  std::string name() const override { return whole_->name(); }
  uint64_t size() const override { return whole_->size(); }
  timespec modified() const override { return whole_->modified(); }
  bool is_remote() const override { return true; }
  void AdviseFile(ByteRange range) const override { whole_->AdviseFile(range); }
  void Prefetch(std::span<const ByteRange> ranges) const override { whole_->Prefetch(ranges); }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    try {
      return whole_->ReadAt(offset, buffer);
    } catch (const Error& e) {
      if ((e.code() != EIO && e.code() != ESTALE) || !object_->has_losses()) throw;
    }
    ReadParts(offset, buffer);
  }

 private:
  void ReadParts(uint64_t offset, std::span<std::byte> buffer) const {
    const auto parts = object_->table().parts();
    while (!buffer.empty()) {
      const size_t i = object_->table().Find(offset);
      if (i == parts.size() || parts[i].offset > offset) {
        Fail(EIO, "no key has the bytes from byte {} on", offset);
      }
      const auto count =
          static_cast<size_t>(std::min<uint64_t>(buffer.size(), parts[i].end() - offset));
      Part(i)->ReadAt(offset - parts[i].offset, buffer.first(count));
      offset += count;
      buffer = buffer.subspan(count);
    }
  }

  ByteSourcePtr Part(size_t i) const {
    const std::scoped_lock lock(mutex_);
    ByteSourcePtr& part = parts_[i];
    if (part == nullptr) {
      part = cached_(std::make_shared<PartObject>(object_, object_->table().parts()[i]));
    }
    return part;
  }

  const std::shared_ptr<const Object> object_;
  const std::function<ByteSourcePtr(RemoteObjectPtr)> cached_;
  const ByteSourcePtr whole_;
  mutable std::mutex mutex_;
  mutable std::map<size_t, ByteSourcePtr> parts_;  // Those that have been needed.
};

}  // namespace

ByteSourcePtr MakePartsSource(std::shared_ptr<const Object> object,
                              std::function<ByteSourcePtr(RemoteObjectPtr)> cached) {
  return std::make_shared<PartsSource>(std::move(object), std::move(cached));
}

}  // namespace ckptfs::redis
