#include "parser/source/redis/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/redis/connection.h"

namespace ckptfs::redis {
namespace {

using Phase = RetryPolicy::Phase;

// Returns the code of a loss by a value of `length` bytes, which is not the expected length.
int LossCode(uint64_t length) { return length == 0 ? EIO : ESTALE; }

[[noreturn]] void FailForLoss(int code, const std::string& key) {
  if (code == EINVAL) Fail(EIO, "key {}: no longer a string", Quoted(key));
  if (code == ESTALE) Fail(code, "key {}: value changed since it was opened", Quoted(key));
  Fail(code, "key {}: not found: deleted, evicted or expired", Quoted(key));
}

[[noreturn]] void FailForHole(uint64_t offset) { Fail(EIO, "no key contains byte {}", offset); }

// Compares the length of every value with the table.
class LengthCheck final : public Pipeline {
 public:
  // Both must outlive this.
  LengthCheck(const KeyTable& table, Losses& losses) : table_(table), losses_(losses) {}

  size_t size() const override { return table_.parts().size(); }

  Command At(size_t i) const override {
    const std::string key = table_.KeyOf(table_.parts()[i]);
    return {.key = key, .requests = {EncodeStrlen(key)}, .reply_size = 0};
  }

  void OnReply(size_t i, size_t /*n*/, const resp::Head& head,
               Connection& /*connection*/) override {
    int code = 0;
    try {
      const uint64_t length = ParseLengthReply(head);
      if (length != table_.parts()[i].length) code = LossCode(length);
    } catch (const Error& e) {
      if (e.code() != EINVAL) throw;
      code = EINVAL;
    }
    losses_[i] = code;
  }

 private:
  const KeyTable& table_;
  Losses& losses_;
};

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

}  // namespace

void ValueFetch::Add(size_t part, uint64_t offset, uint64_t length) {
  while (length > 0) {
    const uint64_t count = std::min(length, kLargestRange);
    pieces_.push_back({.part = part, .offset = offset, .length = count});
    offset += count;
    length -= count;
  }
}

Pipeline::Command ValueFetch::At(size_t i) const {
  const Piece& piece = pieces_[i];
  const std::string key = table_.KeyOf(table_.parts()[piece.part]);
  return {.key = key,
          .requests = {EncodeStrlen(key), EncodeGetRange(key, piece.offset, piece.length)},
          .reply_size = piece.length};
}

void ValueFetch::OnReply(size_t i, size_t n, const resp::Head& head, Connection& connection) {
  Piece& piece = pieces_[i];
  const uint64_t expected = table_.parts()[piece.part].length;
  if (n == 0) {
    const uint64_t length = ParseLengthOrLose(head, piece);
    if (length != expected) Lose(piece, LossCode(length));
    return;
  }
  const uint64_t size = ParseRangeReply(head, piece.length);
  if (size < piece.length) Lose(piece, LossCode(size));
  while (piece.length > 0) {
    const std::span<std::byte> room = delivery_.room();
    const size_t count = connection.Read(
        room.first(static_cast<size_t>(std::min<uint64_t>(room.size(), piece.length))));
    // A retry continues here.
    piece.offset += count;
    piece.length -= count;
    received_ += count;
    delivery_.Arrived(count);
  }
  connection.ReadEnd();
  retry_.Received(received_);
}

uint64_t ValueFetch::ParseLengthOrLose(const resp::Head& head, const Piece& piece) {
  try {
    return ParseLengthReply(head);
  } catch (const Error& e) {
    if (e.code() == EINVAL) Lose(piece, EINVAL);
    throw;
  }
}

void ValueFetch::Lose(const Piece& piece, int code) {
  losses_[piece.part] = code;
  FailForLoss(code, table_.KeyOf(table_.parts()[piece.part]));
}

Object::Object(std::string name, std::unique_ptr<ClusterClient> client, KeyTable table,
               std::vector<std::byte> head, const SourceOptions& options)
    : name_(std::move(name)),
      options_(options),
      table_(std::move(table)),
      head_length_(head.empty() ? table_.header().size() : head.size()),
      head_(std::move(head)),
      losses_(table_.parts().size()),
      client_(std::move(client)),
      size_(table_.parts().back().end()) {}

std::vector<std::byte> Object::TakeHead() const {
  const MutexLock lock(mutex_);
  return std::exchange(head_, {});
}

bool Object::has_lost_parts() const {
  return std::ranges::any_of(losses_, [](const auto& code) { return code != 0; });
}

RemoteObject::Part Object::FindPart(uint64_t offset) const {
  const auto parts = table_.parts();
  const size_t i = table_.Find(offset);
  if (i == parts.size() || parts[i].offset > offset) FailForHole(offset);
  return {.object = std::make_shared<PartObject>(shared_from_this(), parts[i]),
          .offset = parts[i].offset};
}

void Object::CheckLengths() {
  LengthCheck check(table_, losses_);
  RetryPolicy retry(options_, Phase::kOpening, name_, "");
  client_->Run(check, retry, std::stop_token());
  const auto parts = table_.parts();
  size_t lost = 0;
  size_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (losses_[i] == 0) {
      size_ = parts[i].end();
    } else if (lost++ == 0) {
      first = i;
    }
  }
  if (lost == 0 || !options_.warn) return;
  options_.warn(fmt::format(
      "{}: {} of {} keys missing or of another length than in the index: {}{}", name_, lost,
      parts.size(), Quoted(table_.KeyOf(parts[first])), lost == 1 ? "" : ", ..."));
}

void Object::Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
                   const std::stop_token& stop) const {
  const std::vector<std::byte> taken = offset == 0 ? TakeHead() : std::vector<std::byte>();
  const std::span<const std::byte> head = taken.empty() ? table_.header() : taken;
  if (offset < head.size()) {
    const uint64_t count = std::min(length, head.size() - offset);
    delivery.Take(head.subspan(offset, count));
    delivery.Flush();
    offset += count;
    length -= count;
  }
  if (length == 0) return;
  RetryPolicy retry(options_, Phase::kReading, name_,
                    fmt::format("bytes {} to {}", offset, offset + length - 1));
  ValueFetch fetch(table_, losses_, retry, delivery);
  const auto parts = table_.parts();
  size_t i = table_.Find(offset);
  for (; length > 0 && i < parts.size() && parts[i].offset <= offset && losses_[i] == 0; ++i) {
    const uint64_t count = std::min(length, parts[i].end() - offset);
    fetch.Add(i, offset - parts[i].offset, count);
    offset += count;
    length -= count;
  }
  client_->Run(fetch, retry, stop);
  if (length == 0) return;
  if (i < parts.size() && parts[i].offset <= offset) {
    FailForLoss(losses_[i], table_.KeyOf(parts[i]));
  }
  FailForHole(offset);
}

}  // namespace ckptfs::redis
