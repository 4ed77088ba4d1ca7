#include "parser/layer/cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>

#include "parser/base/interruption.h"
#include "parser/codec/decoder/deflate.h"

namespace ckptfs {
namespace {

constexpr size_t kInput = size_t{64} << 10;  // Bytes that are read at once.

// So long nobody is asked whether he has given up: to stop in the middle of a panel wastes what was
// decoded of it. A stream may decode to nothing for very long.
constexpr std::chrono::milliseconds kPatience(100);

}  // namespace

Cursor::Cursor(const Coded& coded) : coded_(coded) {
  std::array<std::byte, kHeadOfStream> buffer = {};
  const auto head = std::span(buffer).first(std::min<uint64_t>(buffer.size(), coded.data.length));
  if (coded.coding == Coding::kLzma) coded.data.source->ReadAt(coded.data.offset, head);
  decoder_ = MakeDecoder(coded.coding, head, coded.size);
}

Cursor::Cursor(const Coded& coded, const Entrance& entrance, std::span<const std::byte> window)
    : coded_(coded), taken_((entrance.bit + 7) / 8), position_(entrance.position) {
  std::array<std::byte, 1> last = {};
  coded.data.source->ReadAt(coded.data.offset + taken_ - 1, last);
  decoder_ = MakeDeflateDecoder(static_cast<unsigned>(taken_ * 8 - entrance.bit), last[0], window);
}

// What is left of the input is not kept, so that who stands still takes no memory for it: to read
// some of it again takes less than a hundredth of the time of decoding.
size_t Cursor::Decode(std::span<std::byte> output) {
  const size_t wanted = output.size();
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kInput);
  std::span<const std::byte> input;
  entrance_.reset();
  const auto patient_until = std::chrono::steady_clock::now() + kPatience;
  while (!output.empty()) {
    if (input.empty()) {
      if (std::chrono::steady_clock::now() > patient_until) Interruption::Check();
      const std::span next(buffer.get(), std::min<uint64_t>(kInput, coded_.data.length - taken_));
      if (!next.empty()) coded_.data.source->ReadAt(coded_.data.offset + taken_, next);
      input = next;
    }
    const size_t input_before = input.size();
    const size_t output_before = output.size();
    const Decoder::Status status = decoder_->Run(input, output);
    taken_ += input_before - input.size();
    position_ += output_before - output.size();
    if (status == Decoder::Status::kEnd) break;
    if (status == Decoder::Status::kDamaged) {
      damage_ = Message(decoder_->damage());
      wrong_ = decoder_->wrong();
      break;
    }
    const bool is_idle = input.size() == input_before && output.size() == output_before;
    if (is_idle && taken_ == coded_.data.length) {
      damage_ = Message(fmt::format("is cut off after {} of {} bytes", position_, coded_.size));
      break;
    }
    assert(!is_idle || input.empty());
    const auto bits = decoder_->unused_bits();
    if (bits && wanted - output.size() >= kDeflateWindow) {
      entrance_ = {.position = position_, .bit = taken_ * 8 - *bits};
    }
  }
  return wanted - output.size();
}

bool Cursor::Skip(uint64_t length) {
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

std::string Cursor::CheckEnd() {
  std::array<std::byte, 1> more = {};
  if (Decode(more) != 0) {
    return Message(fmt::format("goes on after the {} bytes that it should decode to", coded_.size));
  }
  if (!damage_.empty()) return damage_;
  const uint64_t left = coded_.data.length - taken_;
  if (left != 0) return Message(fmt::format("ends, but {} bytes of it are left", left));
  return {};
}

std::string Cursor::Message(std::string_view what) const {
  return fmt::format("{} stream at byte {}: {}", NameOf(coded_.coding), coded_.data.offset + taken_,
                     what);
}

}  // namespace ckptfs
