#include "parser/source/redis/transfer.h"

#include <algorithm>
#include <cerrno>
#include <span>

#include "parser/base/error.h"
#include "parser/source/redis/answers.h"

namespace ckptfs::redis {
namespace {

// The code for a value that has `now` bytes instead of those it had.
int CodeOfLoss(uint64_t now) { return now == 0 ? EIO : ESTALE; }

}  // namespace

void FailForLoss(int code, const std::string& key) {
  if (code == EINVAL) Fail(EIO, "the key {} is no string any more", Quoted(key));
  if (code == ESTALE) Fail(code, "the value of the key {} has changed", Quoted(key));
  Fail(code, "the key {} is gone: it was deleted or evicted, or has expired", Quoted(key));
}

Dialogue::Question LengthCheck::At(size_t i) const {
  const std::string key = table_.KeyOf(table_.parts()[i]);
  return {.key = key, .commands = {Strlen(key)}, .answer_size = 0};
}

void LengthCheck::Take(size_t i, size_t /*n*/, const resp::Head& head, Connection& /*connection*/) {
  int code = 0;
  try {
    const uint64_t length = NumberOf(head);
    if (length != table_.parts()[i].length) code = CodeOfLoss(length);
  } catch (const Error& e) {
    if (e.code() != EINVAL) throw;
    code = EINVAL;
  }
  losses_[i] = code;
}

void Transfer::Add(size_t part, uint64_t offset, uint64_t length) {
  while (length > 0) {
    const uint64_t count = std::min(length, kLargestRange);
    pieces_.push_back({.part = part, .offset = offset, .length = count});
    offset += count;
    length -= count;
  }
}

Dialogue::Question Transfer::At(size_t i) const {
  const Piece& piece = pieces_[i];
  const std::string key = table_.KeyOf(table_.parts()[piece.part]);
  return {.key = key,
          .commands = {Strlen(key), GetRange(key, piece.offset, piece.length)},
          .answer_size = piece.length};
}

void Transfer::Take(size_t i, size_t n, const resp::Head& head, Connection& connection) {
  Piece& piece = pieces_[i];
  const uint64_t wanted = table_.parts()[piece.part].length;
  if (n == 0) {
    const uint64_t length = NumberOrLoss(head, piece);
    if (length != wanted) Lose(piece, CodeOfLoss(length));
    return;
  }
  const uint64_t size = SizeOf(head, piece.length);
  if (size < piece.length) Lose(piece, CodeOfLoss(size));
  while (piece.length > 0) {
    const std::span<std::byte> room = delivery_.room();
    const size_t count = connection.Read(
        room.first(static_cast<size_t>(std::min<uint64_t>(room.size(), piece.length))));
    // After a fault it goes on here.
    piece.offset += count;
    piece.length -= count;
    received_ += count;
    delivery_.Arrived(count);
  }
  connection.ReadEnd();
  attempts_.Received(received_);
}

uint64_t Transfer::NumberOrLoss(const resp::Head& head, const Piece& piece) {
  try {
    return NumberOf(head);
  } catch (const Error& e) {
    if (e.code() == EINVAL) Lose(piece, EINVAL);
    throw;
  }
}

void Transfer::Lose(const Piece& piece, int code) {
  losses_[piece.part] = code;
  FailForLoss(code, table_.KeyOf(table_.parts()[piece.part]));
}

}  // namespace ckptfs::redis
