#include "parser/format/gguf/reader.h"

#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs::gguf {

void Reader::Fetch() {
  const std::span block(buffer_.data(),
                        static_cast<size_t>(std::min<uint64_t>(buffer_.size(), remaining())));
  budget_.Grow(block.size());
  budget_.Work(block.size());
  onward_.Reach(position_ + block.size() - 1);
  file_.ReadAt(position_, block);
  block_ = block;
}

void Reader::Fill(std::span<std::byte> bytes, std::string_view field) {
  if (bytes.size() > remaining()) {
    Fail(EBADMSG, "header at byte {}: {} needs {} bytes, but only {} are left", position_, field,
         bytes.size(), remaining());
  }
  if (position_ + bytes.size() > kMostBytes) {
    Fail(EFBIG, "the header has more than {} bytes, which are the most", kMostBytes);
  }
  while (!bytes.empty()) {
    if (block_.empty()) Fetch();
    const auto piece = block_.first(std::min(block_.size(), bytes.size()));
    std::ranges::copy(piece, bytes.begin());
    bytes = bytes.subspan(piece.size());
    block_ = block_.subspan(piece.size());
    position_ += piece.size();
  }
}

void Reader::ReadText(std::string_view field, uint64_t most, std::string& text) {
  const uint64_t place = position_;
  const uint64_t length = ReadCount(field);
  if (length > most) {
    Fail(EBADMSG, "header at byte {}: {} has {} bytes, but {} is the most", place, field, length,
         most);
  }
  if (length > remaining()) {
    Fail(EBADMSG, "header at byte {}: {} needs {} bytes, but only {} are left", position_, field,
         length, remaining());
  }
  // Before the memory is taken.
  if (length > kMostBytes) {
    Fail(EFBIG, "the header has more than {} bytes, which are the most", kMostBytes);
  }
  text.resize(static_cast<size_t>(length));
  Fill(std::as_writable_bytes(std::span(text)), field);
}

void Reader::CheckCount(uint64_t count, uint64_t least, std::string_view things) const {
  if (const uint64_t room = remaining() / least; count > room) {
    Fail(EBADMSG, "header at byte {}: has {} {}, but the {} bytes that are left have room for {}",
         position_, count, things, remaining(), room);
  }
  if (count > kMostBytes / least) {
    Fail(EFBIG, "header at byte {}: has {} {}, but {} are the most", position_, count, things,
         kMostBytes / least);
  }
}

}  // namespace ckptfs::gguf
