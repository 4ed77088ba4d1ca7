#include "parser/layer/joined.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace ckptfs {
namespace {

class JoinedSource final : public ByteSource {
 public:
  JoinedSource(std::string name, std::vector<Extent> parts)
      : name_(std::move(name)), parts_(std::move(parts)) {
    std::erase_if(parts_, [](const Extent& part) { return part.length == 0; });
    for (const Extent& part : parts_) {
      begins_.push_back(size_);
      size_ += part.length;
      is_immediate_ = is_immediate_ && part.source->is_immediate();
      is_remote_ = is_remote_ || part.source->is_remote();
    }
  }

  std::string name() const override { return name_; }
  uint64_t size() const override { return size_; }
  bool is_immediate() const override { return is_immediate_; }
  bool is_remote() const override { return is_remote_; }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    ForParts(offset, buffer, [](const ByteSource& source, uint64_t at, auto piece) {
      source.ReadAt(at, piece);
      return true;
    });
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    return ForParts(offset, buffer, [](const ByteSource& source, uint64_t at, auto piece) {
      return source.TryReadAt(at, piece);
    });
  }

  Verdict verdict() const override {
    auto all = Verdict::kNone;
    for (const Extent& part : parts_) {
      const Verdict one = part.source->verdict();
      if (one == Verdict::kWrong) return one;
      if (one == Verdict::kUnread || all == Verdict::kNone) all = one;
    }
    return all;
  }

 private:
  // Calls `read` for each piece of `buffer` in one part, until it returns false. Returns whether
  // all returned true.
  template <typename Read>
  bool ForParts(uint64_t offset, std::span<std::byte> buffer, const Read& read) const {
    assert(offset <= size_ && buffer.size() <= size_ - offset);
    if (buffer.empty()) return true;
    auto i = static_cast<size_t>(std::ranges::upper_bound(begins_, offset) - begins_.begin()) - 1;
    for (; !buffer.empty(); ++i) {
      const Extent& part = parts_[i];
      const uint64_t begin = offset - begins_[i];
      const auto count =
          static_cast<size_t>(std::min<uint64_t>(buffer.size(), part.length - begin));
      if (!read(*part.source, part.offset + begin, buffer.first(count))) return false;
      buffer = buffer.subspan(count);
      offset += count;
    }
    return true;
  }

  const std::string name_;
  std::vector<Extent> parts_;     // None is empty.
  std::vector<uint64_t> begins_;  // Where each begins.
  uint64_t size_ = 0;
  bool is_immediate_ = true;
  bool is_remote_ = false;
};

}  // namespace

ByteSourcePtr MakeJoined(std::string name, std::vector<Extent> parts) {
  return std::make_shared<JoinedSource>(std::move(name), std::move(parts));
}

}  // namespace ckptfs
