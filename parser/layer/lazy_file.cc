#include "parser/layer/lazy_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/mutex.h"

namespace ckptfs {
namespace {

class ListedFile final : public ByteSource {
 public:
  ListedFile(FolderPtr folder, std::string name, const EntryInfo& info)
      : folder_(std::move(folder)), name_(std::move(name)), info_(info) {}

  std::string name() const override { return fmt::format("{}/{}", folder_->name(), name_); }
  uint64_t size() const override { return info_.size; }
  timespec modified() const override { return info_.modified; }
  bool is_remote() const override { return folder_->is_remote(); }
  bool is_immediate() const override { return !folder_->is_remote(); }

  Verdict verdict() const override {
    const ByteSourcePtr opened = OpenedIfAny();
    return opened == nullptr ? Verdict::kNone : opened->verdict();
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    Opened()->ReadAt(offset, buffer);
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    const ByteSourcePtr opened = folder_->is_remote() ? OpenedIfAny() : Opened();
    return opened != nullptr && opened->TryReadAt(offset, buffer);
  }

 private:
  ByteSourcePtr OpenedIfAny() const {
    const MutexLock lock(mutex_);
    return opened_;
  }

  ByteSourcePtr Opened() const {
    if (ByteSourcePtr opened = OpenedIfAny()) return opened;
    ByteSourcePtr opened = folder_->OpenData(name_);
    const auto now = folder_->Find(name_);
    if (!now || now->version != info_.version || opened->size() != info_.size) {
      Fail(ESTALE, "file changed since it was listed");
    }
    opened->AdviseFile({.offset = 0, .length = info_.size});
    const MutexLock lock(mutex_);
    if (opened_ == nullptr) opened_ = std::move(opened);  // Else another reader was faster.
    return opened_;
  }

  const FolderPtr folder_;
  const std::string name_;
  const EntryInfo info_;
  mutable Mutex mutex_;  // Not held while the file is opened.
  mutable ByteSourcePtr opened_ GUARDED_BY(mutex_);
};

}  // namespace

ByteSourcePtr MakeListedFile(FolderPtr folder, std::string name, const EntryInfo& info) {
  return std::make_shared<ListedFile>(std::move(folder), std::move(name), info);
}

}  // namespace ckptfs
