#include "parser/layer/decompressor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <iterator>
#include <utility>

#include "parser/base/cancellation.h"
#include "parser/codec/decoder.h"

namespace ckptfs {
namespace {

constexpr size_t kInput = size_t{64} << 10;  // Bytes that are read at once.

// The interval of polls for cancellation: a stop in the middle of a block wastes its decoded part.
// A stream may decode to nothing for very long.
constexpr std::chrono::milliseconds kPollInterval(100);

}  // namespace

Decompressor::Decompressor(const Compressed& compressed) : compressed_(compressed) {
  std::array<std::byte, kHeadOfStream> buffer = {};
  const auto head =
      std::span(buffer).first(std::min<uint64_t>(buffer.size(), compressed.data.length));
  if (compressed.coding == Coding::kLzma)
    compressed.data.source->ReadAt(compressed.data.offset, head);
  decoder_ = MakeDecoder(compressed.coding, head, compressed.size);
}

Decompressor::Decompressor(const Compressed& compressed, const AccessPoint& access_point,
                           std::span<const std::byte> window)
    : compressed_(compressed),
      taken_((access_point.bit + 7) / 8),
      position_(access_point.position) {
  std::array<std::byte, 1> last = {};
  compressed.data.source->ReadAt(compressed.data.offset + taken_ - 1, last);
  decoder_ =
      MakeDeflateDecoder(static_cast<unsigned>(taken_ * 8 - access_point.bit), last[0], window);
}

// The rest of the input is not cached, so that a paused decompressor takes no memory for it:
// reading some of it again takes less than a hundredth of the time of decoding.
size_t Decompressor::Decode(std::span<std::byte> output) {
  const size_t wanted = output.size();
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kInput);
  std::span<const std::byte> input;
  access_point_.reset();
  const auto poll_at = std::chrono::steady_clock::now() + kPollInterval;
  while (!output.empty()) {
    if (input.empty()) {
      if (std::chrono::steady_clock::now() > poll_at) Cancellation::Check();
      const std::span next(buffer.get(),
                           std::min<uint64_t>(kInput, compressed_.data.length - taken_));
      if (!next.empty()) compressed_.data.source->ReadAt(compressed_.data.offset + taken_, next);
      input = next;
    }
    const size_t input_before = input.size();
    const size_t output_before = output.size();
    const Decoder::Status status = decoder_->Run(input, output);
    taken_ += input_before - input.size();
    position_ += output_before - output.size();
    if (status == Decoder::Status::kEnd) break;
    if (status == Decoder::Status::kCorrupt) {
      damage_ = Message(decoder_->damage());
      wrong_ = decoder_->wrong();
      break;
    }
    const bool is_idle = input.size() == input_before && output.size() == output_before;
    if (is_idle && taken_ == compressed_.data.length) {
      damage_ = Message(
          fmt::format("unexpected end of data after {} of {} bytes", position_, compressed_.size));
      break;
    }
    assert(!is_idle || input.empty());
    const auto bits = decoder_->unused_bits();
    if (bits && wanted - output.size() >= kDeflateWindow) {
      access_point_ = {.position = position_, .bit = taken_ * 8 - *bits};
    }
  }
  return wanted - output.size();
}

bool Decompressor::Skip(uint64_t length) {
  if (length == 0) return true;
  constexpr uint64_t kPiece = uint64_t{64} << 10;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPiece);
  while (length > 0) {
    const std::span piece(buffer.get(), std::min(kPiece, length));
    if (Decode(piece) != piece.size()) return false;
    length -= piece.size();
  }
  return true;
}

std::string Decompressor::CheckEnd() {
  std::array<std::byte, 1> more = {};
  if (Decode(more) != 0) {
    return Message(
        fmt::format("decompresses to more than the expected {} bytes", compressed_.size));
  }
  if (!damage_.empty()) return damage_;
  const uint64_t left = compressed_.data.length - taken_;
  if (left != 0) return Message(fmt::format("{} extra bytes at its end", left));
  return {};
}

std::string Decompressor::Message(std::string_view what) const {
  return fmt::format("{} stream at byte {}: {}", NameOf(compressed_.coding),
                     compressed_.data.offset + taken_, what);
}

void DecompressorPool::Return::operator()(Decompressor* decompressor) const noexcept {
  const size_t memory = decompressor->memory();
  delete decompressor;
  {
    const MutexLock lock(decompressors->mutex_);
    decompressors->used_ -= memory;
  }
  decompressors->changed_.notify_all();
}

DecompressorPool::Working DecompressorPool::Start(std::unique_ptr<Decompressor> decompressor) {
  const size_t memory = decompressor->memory();
  while (true) {
    std::list<Cached> dropped;  // Outlives the lock.
    MutexLock lock(mutex_);
    Cancellation::Wait(lock, changed_, [&]() REQUIRES(mutex_) {
      return used_ == 0 || (used_ <= capacity_ && memory <= capacity_ - used_) || !cached_.empty();
    });
    if (used_ == 0 || (used_ <= capacity_ && memory <= capacity_ - used_)) {
      used_ += memory;
      return {decompressor.release(), Return{this}};
    }
    dropped.splice(dropped.end(), cached_, std::prev(cached_.end()));
  }
}

DecompressorPool::Working DecompressorPool::Take(uint64_t owner, uint64_t begin, uint64_t end) {
  const MutexLock lock(mutex_);
  auto best = cached_.end();
  for (auto cached = cached_.begin(); cached != cached_.end(); ++cached) {
    if (cached->owner != owner) continue;
    const uint64_t position = cached->decompressor->position();
    if (position < begin || position > end) continue;
    if (best == cached_.end() || position > best->decompressor->position()) best = cached;
  }
  if (best == cached_.end()) return {nullptr, Return{this}};
  Working decompressor = std::move(best->decompressor);
  cached_.erase(best);
  return decompressor;
}

void DecompressorPool::Keep(uint64_t owner, Working decompressor) {
  std::list<Cached> one;
  one.push_back({.owner = owner, .decompressor = std::move(decompressor)});
  {
    const MutexLock lock(mutex_);
    cached_.splice(cached_.begin(), one);
  }
  changed_.notify_all();
}

void DecompressorPool::Drop(uint64_t owner) {
  std::list<Cached> dropped;  // Outlives the lock.
  const MutexLock lock(mutex_);
  for (auto cached = cached_.begin(); cached != cached_.end();) {
    const auto next = std::next(cached);
    if (cached->owner == owner) dropped.splice(dropped.end(), cached_, cached);
    cached = next;
  }
}

size_t DecompressorPool::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

}  // namespace ckptfs
