// What a stream decodes to is divided into panels of 1 MiB, which the panel cache keeps for the
// next reads. The first pass makes them in their order, whoever drives it: threads that want panels
// which it has not reached wait for it, or drive it themselves. Of each panel it leaves behind a
// hash, and what it takes to make the panel again without those before:
//
//   deflate       the last beginning of a block, and the 32 KiB before it: 3 % of the decoded bytes
//   bzip2, LZMA   the panel
//
// both in a scratch file. Where there is no room for it, a panel is made again from the nearest
// place before it, which may be the beginning of the stream. A decoder that has made a panel is
// kept where it stands: whoever wants the next panel goes on from there.
//
// Measured with 256 MiB of weights: to keep the decoded bytes themselves made a first pass of 1.4 s
// take 2.8 s, and all of the disk space that the mount is to save; to stop at entrances cost
// nothing that could be measured, and a panel is made again in 5 ms.

#include "parser/layer/decoded.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/interruption.h"
#include "parser/codec/decoder/deflate.h"
#include "parser/io/stored_size.h"

namespace ckptfs {
namespace {

constexpr size_t kPanel = size_t{1} << 20;  // Bytes.

// Who reads this byte of a panel after others of it probably reads in order, as does who comes to a
// panel from the one before it: the byte is in the second piece that the kernel asks for then. He
// will want the next panel, too.
constexpr size_t kSign = size_t{128} << 10;

// Follows no panel, and none follows it.
constexpr uint64_t kNoPanel = std::numeric_limits<uint64_t>::max() - 1;

uint32_t CrcOf(std::span<const std::byte> bytes) {
  const auto* const data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<uint32_t>(::crc32_z(0, data, bytes.size()));
}

// An entrance whose window is kept.
struct KeptEntrance {
  Entrance entrance;
  uint64_t window = 0;  // Where in the scratch file.
};

class DecodedSource final : public ByteSource, public PartlyStored {
 public:
  DecodedSource(const Coded& coded, uint32_t crc, std::shared_ptr<Decoding> decoding)
      : coded_(coded),
        crc_(crc),
        decoding_(std::move(decoding)),
        owner_(decoding_->panels->NewOwner()),
        good_(coded.size),
        verdict_(crc == 0 ? Verdict::kNone : Verdict::kUnread) {}

  DecodedSource(const DecodedSource&) = delete;
  DecodedSource& operator=(const DecodedSource&) = delete;
  ~DecodedSource() override {
    decoding_->panels->Leave(owner_);
    decoding_->decoders.Drop(owner_);
  }

  std::string name() const override { return coded_.data.source->name(); }
  uint64_t size() const override { return coded_.size; }
  uint64_t stored_size() const override { return coded_.data.length; }
  timespec modified() const override { return coded_.data.source->modified(); }
  Verdict verdict() const override { return verdict_; }
  bool is_remote() const override { return coded_.data.source->is_remote(); }

  // Whatever is read, decoding goes through the stream in its order.
  void ExpectFile(ByteRange /*range*/) const override {
    coded_.data.source->ExpectFile({.offset = coded_.data.offset, .length = coded_.data.length});
  }

  // What is encoded is hardly longer than what it decodes to.
  void ReadSoon(std::span<const ByteRange> ranges) const override {
    uint64_t end = 0;
    for (const ByteRange& range : ranges) end = std::max(end, range.offset + range.length);
    const ByteRange soon{.offset = coded_.data.offset, .length = std::min(end, coded_.data.length)};
    if (end > 0) coded_.data.source->ReadSoon({&soon, 1});
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    while (!buffer.empty()) {
      const uint64_t index = offset / kPanel;
      const size_t skipped = offset % kPanel;
      const size_t n = std::min<size_t>(buffer.size(), SizeOf(index) - skipped);
      RefuseIfBad(offset + n);
      ReadPanel(index, skipped, buffer.first(n));
      RefuseIfBad(offset + n);
      buffer = buffer.subspan(n);
      offset += n;
    }
  }

 private:
  // What the first pass has left behind of a panel.
  struct Passed {
    uint32_t crc = 0;
    std::optional<uint64_t> kept;  // Where the panel is in the scratch file.
  };

  uint64_t Count() const { return coded_.size / kPanel + (coded_.size % kPanel != 0 ? 1 : 0); }

  size_t SizeOf(uint64_t index) const {
    return std::min<uint64_t>(kPanel, coded_.size - index * kPanel);
  }

  // Throws if not all bytes before `end` are as good as any.
  void RefuseIfBad(uint64_t end) const {
    if (end > good_) throw Error(EIO, damage_);
  }

  // Reads what is at `offset` of a panel. Behind good_, it is anything.
  void ReadPanel(uint64_t index, size_t offset, std::span<std::byte> buffer) const {
    const auto make = [&](std::span<std::byte> panel) { Make(index, panel); };
    const size_t size = SizeOf(index);
    if (buffer.size() == size) return make(buffer);
    const uint64_t before = current_.exchange(index);
    const bool is_sign = offset <= kSign && kSign - offset < buffer.size();
    if (before + 1 == index || (before == index && is_sign)) PrepareNext(index);
    const PanelCache::Key key{.owner = owner_, .index = index};
    if (decoding_->panels->Read(key, size, offset, buffer, make)) return;
    std::vector<std::byte> panel(size);
    make(panel);
    std::ranges::copy(std::span(panel).subspan(offset, buffer.size()), buffer.begin());
  }

  // Has the panel after `index`, if there is one, made beside the reads, for who reads in order.
  void PrepareNext(uint64_t index) const {
    const uint64_t next = index + 1;
    if (next >= Count()) return;
    decoding_->panels->PrepareSoon(
        {.owner = owner_, .index = next}, SizeOf(next),
        [this, next](std::span<std::byte> panel) { Make(next, panel); },
        [this, index] { return current_ == index; });
  }

  // Makes a panel, as far as it is good.
  void Make(uint64_t index, std::span<std::byte> panel) const {
    if (!MakeFirst(index, panel)) MakeAgain(index, panel);
  }

  // Makes a panel that the first pass has not reached. Returns false if it has, or ends before.
  bool MakeFirst(uint64_t index, std::span<std::byte> panel) const {
    const auto is_over = [&] { return passed_.size() > index || good_ < coded_.size; };
    {
      std::unique_lock lock(mutex_);
      Interruption::Wait(lock, changed_, [&] { return !is_driven_ || is_over(); });
      if (is_over()) return false;
      is_driven_ = true;
    }
    const auto stop = [&] {
      {
        const std::scoped_lock lock(mutex_);
        is_driven_ = false;
      }
      changed_.notify_all();
    };
    try {
      Drive(index, panel);
    } catch (...) {
      stop();
      throw;
    }
    stop();
    return true;
  }

  // Takes the first pass to the end of panel `index`, or to where it ends before that. To be called
  // by one thread at a time.
  void Drive(uint64_t index, std::span<std::byte> panel) const {
    uint64_t next = passed_.size();  // Only who drives changes it.
    auto cursor = CursorAt(next * kPanel);
    std::unique_ptr<std::byte[]> other;
    for (; next < index; ++next) {
      if (other == nullptr) other = std::make_unique_for_overwrite<std::byte[]>(kPanel);
      if (!Pass(*cursor, next, {other.get(), kPanel})) return;
      MayStop(cursor);
    }
    if (Pass(*cursor, index, panel)) KeepCursor(std::move(cursor));
  }

  // Takes the first pass through the panel `index`, the next one. Returns false if it ends there.
  bool Pass(Cursor& cursor, uint64_t index, std::span<std::byte> panel) const {
    const size_t made = cursor.Decode(panel);
    if (made < panel.size()) {
      const uint64_t position = cursor.position();
      if (!cursor.damage().empty()) {
        SetDamage(position - std::min(position, cursor.wrong()), cursor.damage());
      } else {
        SetDamage(0,
                  cursor.Message(fmt::format("ends after {} of {} bytes", position, coded_.size)));
      }
      return false;
    }
    Passed passed{.crc = CrcOf(panel)};
    const auto crc = static_cast<uint32_t>(
        ::crc32_combine(crc_so_far_, passed.crc, static_cast<z_off_t>(panel.size())));
    const bool is_last = index + 1 == Count();
    if (is_last && !CheckEnd(cursor, crc)) return false;
    std::optional<KeptEntrance> entrance;
    if (coded_.coding == Coding::kDeflate) {
      if (!is_last) entrance = KeepEntrance(cursor, index, panel);
    } else if (Count() > 1) {
      passed.kept = decoding_->scratch.Keep(panel);
    }
    {
      const std::scoped_lock lock(mutex_);
      if (entrance) entrances_.push_back(*entrance);
      passed_.push_back(passed);
    }
    crc_so_far_ = crc;
    if (is_last && crc_ != 0) verdict_ = Verdict::kRight;
    changed_.notify_all();
    return true;
  }

  // Looks at what only shows at the end. Returns false if it is not right.
  bool CheckEnd(Cursor& cursor, uint32_t crc) const {
    std::string damage = cursor.CheckEnd();
    if (damage.empty() && crc_ != 0 && crc != crc_) {
      damage = cursor.Message(fmt::format(
          "CRC-32 of what it decodes to is {:#010x}, but should be {:#010x}", crc, crc_));
    }
    if (damage.empty()) return true;
    SetDamage(0, std::move(damage));
    return false;
  }

  // Remembers what is wrong: only the first `good` bytes can be had.
  void SetDamage(uint64_t good, std::string damage) const {
    if (crc_ != 0) verdict_ = Verdict::kWrong;
    const std::scoped_lock lock(mutex_);
    damage_ = std::move(damage);
    good_ = good;
  }

  std::optional<KeptEntrance> KeepEntrance(const Cursor& cursor, uint64_t index,
                                           std::span<const std::byte> panel) const {
    const auto& entrance = cursor.entrance();
    if (!entrance) return std::nullopt;
    const size_t end = entrance->position - index * kPanel;
    const auto window =
        decoding_->scratch.Keep(panel.subspan(end - kDeflateWindow, kDeflateWindow));
    if (!window) return std::nullopt;
    return KeptEntrance{.entrance = *entrance, .window = *window};
  }

  // Makes a panel as the first pass has made it.
  void MakeAgain(uint64_t index, std::span<std::byte> panel) const {
    const uint64_t begin = index * kPanel;
    std::optional<Passed> passed;  // Not of a panel where the stream is damaged.
    {
      const std::scoped_lock lock(mutex_);
      if (begin >= good_) return;  // It turned out just now.
      if (index < passed_.size()) passed = passed_[index];
    }
    if (passed && passed->kept) {
      decoding_->scratch.Read(*passed->kept, panel);
    } else {
      auto cursor = CursorAt(begin);
      const size_t made = cursor->Decode(panel);
      const uint64_t wanted = passed ? panel.size() : good_ - begin;
      if (made < wanted) Changed(begin);
      if (passed && index + 1 < Count()) KeepCursor(std::move(cursor));
    }
    if (passed && CrcOf(panel) != passed->crc) Changed(begin);
  }

  [[noreturn]] void Changed(uint64_t begin) const {
    Fail(EIO, "{} stream at byte {}: byte {} and the next ones decode to others than before",
         NameOf(coded_.coding), coded_.data.offset, begin);
  }

  // Returns a decoder that stands at `position`, which the first pass has reached.
  Decoders::Working CursorAt(uint64_t position) const {
    std::optional<KeptEntrance> entrance;
    {
      const std::scoped_lock lock(mutex_);
      const auto after = std::ranges::upper_bound(
          entrances_, position, {}, [](const KeptEntrance& e) { return e.entrance.position; });
      if (after != entrances_.begin()) entrance = after[-1];
    }
    Decoders& decoders = decoding_->decoders;
    auto cursor = decoders.Take(owner_, entrance ? entrance->entrance.position : 0, position);
    if (cursor == nullptr) cursor = decoders.Start(Begin(entrance));
    while (cursor->position() < position) {
      const uint64_t left = position - cursor->position();
      if (!cursor->Skip(std::min<uint64_t>(kPanel, left))) Changed(position);
      MayStop(cursor);
    }
    return cursor;
  }

  // Throws as Interruption::CheckTurn does, having kept the decoder for who goes on.
  void MayStop(Decoders::Working& cursor) const {
    try {
      Interruption::CheckTurn();
    } catch (...) {
      KeepCursor(std::move(cursor));
      throw;
    }
  }

  std::unique_ptr<Cursor> Begin(const std::optional<KeptEntrance>& entrance) const {
    if (!entrance) return std::make_unique<Cursor>(coded_);
    std::vector<std::byte> window(kDeflateWindow);
    decoding_->scratch.Read(entrance->window, window);
    return std::make_unique<Cursor>(coded_, entrance->entrance, window);
  }

  void KeepCursor(Decoders::Working cursor) const {
    if (cursor->position() < coded_.size) decoding_->decoders.Keep(owner_, std::move(cursor));
  }

  const Coded coded_;
  const uint32_t crc_;
  const std::shared_ptr<Decoding> decoding_;
  const uint64_t owner_;
  mutable std::atomic<uint64_t> current_ = kNoPanel;  // That was asked for last.

  mutable uint32_t crc_so_far_ = 0;  // Only for who drives the first pass.

  // How many bytes can be had, as far as is known, and why not more. Changes once.
  mutable std::string damage_;
  mutable std::atomic<uint64_t> good_;
  mutable std::atomic<Verdict> verdict_;

  mutable std::mutex mutex_;  // No decoding and no reading under it. Guards what is below.
  mutable std::condition_variable changed_;
  mutable bool is_driven_ = false;               // A thread drives the first pass.
  mutable std::vector<Passed> passed_;           // By panel.
  mutable std::vector<KeptEntrance> entrances_;  // By position.
};

}  // namespace

ByteSourcePtr MakeDecoded(const Coded& coded, uint32_t crc, std::shared_ptr<Decoding> decoding) {
  return std::make_shared<DecodedSource>(coded, crc, std::move(decoding));
}

}  // namespace ckptfs
