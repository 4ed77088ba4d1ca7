// One direction of a link: packets leave at the rate of the link, one after another, and arrive
// after its latency.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>

namespace ckptfs {

struct LinkShape {
  double latency_ms = 0;    // One way.
  double mbit = 0;          // 10^6 bits per second.
  double loss_percent = 0;  // Of packets, chosen at random.
  double queue_kib = 0;     // Bytes that wait for the link. It drops further packets.
};

// Counters of a direction.
struct Traffic {
  uint64_t packets = 0;  // Of at most the MTU.
  uint64_t bytes = 0;    // Of TCP payload, retransmissions included.
  uint64_t dropped = 0;  // Packets, not counted above.
};

class Direction {
 public:
  // Carries packets from the TUN device `in` to the TUN device `out`: descriptors that do not
  // block, and outlive this object.
  Direction(int in, int out, unsigned seed);

  // Forwards packets, and does not return. To be called by one thread.
  [[noreturn]] void Run();

  // Thread-safe, as are the next two.
  void SetShape(const LinkShape& shape);
  // Drops all packets, if `is_closed`.
  void Close(bool is_closed) { is_closed_ = is_closed; }
  Traffic traffic() const { return {packets_, bytes_, dropped_}; }

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  struct Packet {
    Time due;           // When it arrives.
    size_t offset = 0;  // In the ring.
    size_t length = 0;
  };

  void Deliver();
  bool Accept();
  bool IsLost();
  void WaitForPackets() const;
  std::optional<std::span<std::byte>> FreeSpace();

  const int in_, out_;
  std::atomic<Clock::duration> latency_;
  std::atomic<double> nanoseconds_per_byte_ = 0;
  std::atomic<double> loss_ = 0;  // A probability.
  std::atomic<Clock::duration> longest_queue_;
  std::atomic<bool> is_closed_ = false;
  std::atomic<uint64_t> packets_ = 0, bytes_ = 0, dropped_ = 0;

  // The packets under way lie in a ring, each in one piece.
  std::unique_ptr<std::byte[]> ring_;
  size_t ring_end_ = 0;  // Where the next packet goes.
  std::deque<Packet> under_way_;
  Time idle_at_;  // When the last packet will have left.
  std::minstd_rand random_;
};

}  // namespace ckptfs
