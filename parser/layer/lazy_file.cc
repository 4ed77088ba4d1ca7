#include "parser/layer/lazy_file.h"

#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/mutex.h"

namespace ckptfs {
namespace {

class LazySource final : public ByteSource {
 public:
  explicit LazySource(LazyFile file) : file_(std::move(file)) {}

  std::string name() const override { return file_.name; }
  uint64_t size() const override { return file_.size; }
  timespec modified() const override { return file_.modified; }
  bool is_remote() const override { return file_.is_remote; }
  bool is_immediate() const override { return !file_.is_remote; }

  Verdict verdict() const override {
    const ByteSourcePtr opened = OpenedIfAny();
    return opened == nullptr ? Verdict::kNone : opened->verdict();
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    Opened()->ReadAt(offset, buffer);
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    const ByteSourcePtr opened = file_.is_remote ? OpenedIfAny() : Opened();
    return opened != nullptr && opened->TryReadAt(offset, buffer);
  }

 private:
  ByteSourcePtr OpenedIfAny() const {
    const MutexLock lock(mutex_);
    return opened_;
  }

  ByteSourcePtr Opened() const {
    if (ByteSourcePtr opened = OpenedIfAny()) return opened;
    ByteSourcePtr opened = file_.open();
    if (opened->size() != file_.size) Fail(ESTALE, "file changed since it was listed");
    opened->AdviseFile({.offset = 0, .length = file_.size});
    const MutexLock lock(mutex_);
    if (opened_ == nullptr) opened_ = std::move(opened);  // Else another reader was faster.
    return opened_;
  }

  const LazyFile file_;
  mutable Mutex mutex_;  // Not held while the file is opened.
  mutable ByteSourcePtr opened_ GUARDED_BY(mutex_);
};

}  // namespace

ByteSourcePtr MakeLazy(LazyFile file) { return std::make_shared<LazySource>(std::move(file)); }

}  // namespace ckptfs
