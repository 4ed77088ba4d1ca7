// Reads opcodes and their arguments.

#pragma once

#include <algorithm>
#include <bit>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "parser/base/error.h"
#include "parser/codec/pickle/text.h"

namespace ckptfs::pickle {

static_assert(std::endian::native == std::endian::little, "port Reader::Read");

// Most bytes of a line that is a name or a number. One that is a text may be as long as the pickle.
constexpr size_t kMaxLine = size_t{64} << 10U;

// A decompressor over a pickle. Every read is bounds-checked. The Errors say what was being read, but
// neither opcode nor place, which is for the machine to add.
class Reader {
 public:
  // `pickle`, or a part of one before which there are `before` bytes, must outlive the reader.
  explicit Reader(std::span<const std::byte> pickle, size_t before = 0)
      : pickle_(reinterpret_cast<const char*>(pickle.data()), pickle.size()), before_(before) {}

  // Number of bytes read, and before the part.
  size_t position() const { return before_ + position_; }
  size_t remaining() const { return pickle_.size() - position_; }

  // Reads an integer, least significant byte first.
  template <std::integral T>
  T Read(std::string_view what) {
    T value;
    std::memcpy(&value, Take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // Reads a length that is stored as T, then as many bytes. The view points into the pickle.
  template <std::integral T>
  std::string_view ReadCounted(std::string_view what) {
    const T length = Read<T>("length");
    if (std::signed_integral<T> && length < 0) Fail(EBADMSG, "length is {}", length);
    return Take(static_cast<uint64_t>(length), what);
  }

  // Reads up to the next newline, which is not part of the result. Fails with EFBIG if there are
  // more than `limit` bytes before it.
  std::string_view ReadLine(std::string_view what, size_t limit = kMaxLine) {
    const std::string_view rest = pickle_.substr(position_);
    const size_t length = rest.substr(0, limit < rest.size() ? limit + 1 : limit).find('\n');
    if (length == std::string_view::npos) {
      if (rest.size() > limit) Fail(EFBIG, "{} is longer than {} bytes", what, limit);
      Fail(EBADMSG, "{} does not end with a newline", what);
    }
    position_ += length + 1;
    return rest.substr(0, length);
  }

  // Reads a line that is an index of the memo.
  uint64_t ReadMemoIndex() { return ParseMemoIndex(ReadLine("memo index")); }

  // Fails if fewer than `length` bytes are left.
  void CheckRemaining(uint64_t length, std::string_view what) const {
    if (length > remaining()) {
      Fail(EBADMSG, "{} needs {} bytes, but only {} are left", what, length, remaining());
    }
  }

 private:
  std::string_view Take(uint64_t length, std::string_view what) {
    CheckRemaining(length, what);
    const std::string_view taken = pickle_.substr(position_, length);
    position_ += length;
    return taken;
  }

  std::string_view pickle_;
  size_t before_;
  size_t position_ = 0;
};

}  // namespace ckptfs::pickle
