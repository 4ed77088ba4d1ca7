// The input of the JSON parser: characters and tokens.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::json {

// The characters of a text, read a block at a time. Belongs to one thread.
class Characters {
 public:
  static constexpr uint64_t kMostOfBlock = 65536;  // Bytes.

  Characters(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget)
      : source_(source),
        budget_(budget),
        offset_(offset),
        length_(length),
        capacity_(static_cast<size_t>(std::min(length, kMostOfBlock))),
        buffer_(std::make_unique_for_overwrite<char[]>(capacity_)) {
    constexpr uint64_t kMostAtOnce = uint64_t{16} << 20U;  // Bytes.
    const ByteRange ahead{.offset = offset, .length = std::min(length, kMostAtOnce)};
    if (length > 0) source.Prefetch({&ahead, 1});
    Fetch();
  }

  bool is_at_end() const { return block_.empty(); }
  char current() const { return block_.front(); }
  uint64_t position() const { return fetched_ - block_.size(); }

  // The characters that are in memory.
  std::string_view block() const { return block_; }

  void Advance(size_t count = 1) {
    block_.remove_prefix(count);
    if (block_.empty()) Fetch();
  }

 private:
  void Fetch() {
    const auto length = std::min<uint64_t>(capacity_, length_ - fetched_);
    if (length == 0) return;
    budget_.Work(length / 4);
    const std::span block(buffer_.get(), static_cast<size_t>(length));
    source_.ReadAt(offset_ + fetched_, std::as_writable_bytes(block));
    fetched_ += length;
    block_ = {block.data(), block.size()};
  }

  const ByteSource& source_;
  Budget& budget_;
  uint64_t offset_;
  uint64_t length_;
  uint64_t fetched_ = 0;
  std::string_view block_;  // The rest of the block.

  // Documents are usually small and may be numerous: the buffer is no larger than the text, and not
  // zeroed.
  size_t capacity_;
  std::unique_ptr<char[]> buffer_;
};

// The current token: a decoded text, or a number or word as written. Its memory is charged to the
// budget as long as this lives. Belongs to one thread.
class Token {
 public:
  explicit Token(Budget& budget) : budget_(budget) {}
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
  ~Token() { budget_.Refund(charged_); }

  std::string& text() { return text_; }
  void Clear() { text_.clear(); }

  void Append(std::string_view more) {
    constexpr size_t kFree = 4096;
    if (const size_t want = text_.size() + more.size(); want > charged_ + kFree) {
      const size_t least = std::max(want, 2 * charged_);
      budget_.Charge(least);
      text_.reserve(least);  // Both buffers exist while the text is copied.
      budget_.Refund(charged_);
      charged_ = least;
    }
    text_ += more;
  }

 private:
  Budget& budget_;
  std::string text_;
  size_t charged_ = 0;
};

}  // namespace ckptfs::json
