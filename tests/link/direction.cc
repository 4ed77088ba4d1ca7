#include "tests/link/direction.h"

#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>

namespace ckptfs {
namespace {

using std::chrono::nanoseconds;

constexpr size_t kLargestPacket = 70'000;  // A large segment, 64 KiB, and its headers.
// 10 Gbit/s for 50 ms. Memory that is never used costs nothing.
constexpr size_t kRing = 64U << 20U;
// The packets that are accepted before others are delivered.
constexpr int kBatch = 64;
constexpr double kEthernetBytes = 18;  // The overhead of Ethernet per packet.

// virtio_net_hdr, whose header is no C++. In the byte order of the machine.
struct OffloadHeader {
  uint8_t flags;
  uint8_t segmentation;  // 0: the packet is one segment.
  uint16_t header_length;
  uint16_t segment_payload;  // In bytes, of each segment but the last.
  uint16_t checksum_start;
  uint16_t checksum_offset;
};

// The size of a packet of a TUN device on the wire.
struct WireSize {
  uint64_t packets = 1;
  uint64_t payload = 0;  // Of TCP, in bytes.
  double bytes = 0;
};

size_t LowNibble(std::byte byte) { return std::to_integer<size_t>(byte) & 15U; }

size_t HighNibble(std::byte byte) { return std::to_integer<size_t>(byte) >> 4U; }

// Returns the length of the headers of IPv4 and TCP; 0 for other packets.
size_t HeaderLength(std::span<const std::byte> packet) {
  constexpr size_t kProtocol = 9, kDataOffset = 12, kLeast = 40;
  if (packet.size() < kLeast || HighNibble(packet[0]) != 4 ||
      packet[kProtocol] != std::byte{IPPROTO_TCP}) {
    return 0;
  }
  const size_t ip = LowNibble(packet[0]) * 4;
  if (ip + kDataOffset >= packet.size()) return 0;
  const size_t length = ip + HighNibble(packet[ip + kDataOffset]) * 4;
  return std::min(length, packet.size());
}

// Returns the size of `bytes`, as read from the device: an OffloadHeader and a packet.
WireSize SizeOnWire(std::span<const std::byte> bytes) {
  OffloadHeader offload = {};
  std::copy_n(bytes.begin(), sizeof offload, std::as_writable_bytes(std::span(&offload, 1)).data());
  const auto packet = bytes.subspan(sizeof offload);
  const size_t header = HeaderLength(packet);
  WireSize size{.packets = 1, .payload = header == 0 ? 0 : packet.size() - header};
  if (offload.segmentation != 0 && offload.segment_payload > 0) {
    size.packets = (size.payload + offload.segment_payload - 1) / offload.segment_payload;
  }
  const auto packets = static_cast<double>(size.packets);
  const auto repeated = static_cast<double>(header) * (packets - 1);
  size.bytes = static_cast<double>(packet.size()) + repeated + packets * kEthernetBytes;
  return size;
}

}  // namespace

Direction::Direction(int in, int out, unsigned seed)
    : in_(in),
      out_(out),
      latency_(Clock::duration::zero()),
      longest_queue_(Clock::duration::zero()),
      ring_(new std::byte[kRing]),  // Not initialized: the kernel supplies memory as it is used.
      random_(seed) {}

void Direction::SetShape(const LinkShape& shape) {
  const double per_byte = 8000 / shape.mbit;
  latency_ = nanoseconds(std::llround(shape.latency_ms * 1e6));
  nanoseconds_per_byte_ = per_byte;
  loss_ = shape.loss_percent / 100;
  longest_queue_ = nanoseconds(std::llround(shape.queue_kib * 1024 * per_byte));
}

void Direction::Run() {
  while (true) {
    Deliver();
    if (!Accept()) WaitForPackets();
  }
}

// Writes the packets that are due.
void Direction::Deliver() {
  const Time now = Clock::now();
  while (!under_way_.empty() && under_way_.front().due <= now) {
    const Packet& packet = under_way_.front();
    if (::write(out_, &ring_[packet.offset], packet.length) < 0) {
      if (errno == EAGAIN) {
        pollfd writable = {.fd = out_, .events = POLLOUT, .revents = 0};
        ::poll(&writable, 1, 1);
        return;
      }
      ++dropped_;
    }
    under_way_.pop_front();
  }
}

// Reads the packets that wait in the device, up to a batch. Returns whether there were any.
bool Direction::Accept() {
  for (int i = 0; i < kBatch; ++i) {
    std::byte overflow[kLargestPacket];
    const auto space = FreeSpace();
    const std::span<std::byte> buffer = space.value_or(overflow);
    const ssize_t count = ::read(in_, buffer.data(), buffer.size());
    if (count <= static_cast<ssize_t>(sizeof(OffloadHeader))) return i > 0;
    const auto length = static_cast<size_t>(count);
    const WireSize size = SizeOnWire(buffer.first(length));
    const Time now = Clock::now();
    const Time begin = std::max(now, idle_at_);
    if (!space || begin - now > longest_queue_.load() || IsLost()) {
      dropped_ += size.packets;
      continue;
    }
    idle_at_ = begin + nanoseconds(std::llround(size.bytes * nanoseconds_per_byte_));
    // Packets arrive in order, also after the latency has been lowered.
    const Time earliest = under_way_.empty() ? Time() : under_way_.back().due;
    under_way_.push_back({.due = std::max(idle_at_ + latency_.load(), earliest),
                          .offset = static_cast<size_t>(buffer.data() - ring_.get()),
                          .length = length});
    ring_end_ = under_way_.back().offset + length;
    packets_ += size.packets;
    bytes_ += size.payload;
  }
  return true;
}

bool Direction::IsLost() {
  if (is_closed_) return true;
  const double probability = loss_;
  return probability > 0 && std::bernoulli_distribution(probability)(random_);
}

// Waits until a packet can be read or is due.
void Direction::WaitForPackets() const {
  pollfd readable = {.fd = in_, .events = POLLIN, .revents = 0};
  timespec timeout = {};
  if (!under_way_.empty()) {
    const auto left = std::max(Clock::duration::zero(), under_way_.front().due - Clock::now());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    timeout = {.tv_sec = seconds.count(), .tv_nsec = nanoseconds(left - seconds).count()};
  }
  ::ppoll(&readable, 1, under_way_.empty() ? nullptr : &timeout, nullptr);
}

// Returns space in the ring for the largest packet, or nothing if the ring is full.
std::optional<std::span<std::byte>> Direction::FreeSpace() {
  if (under_way_.empty()) ring_end_ = 0;
  const size_t begin = under_way_.empty() ? 0 : under_way_.front().offset;
  if (ring_end_ >= begin && ring_end_ + kLargestPacket > kRing) ring_end_ = 0;
  const bool is_wrapped = !under_way_.empty() && ring_end_ <= begin;
  if (is_wrapped && ring_end_ + kLargestPacket > begin) return std::nullopt;
  return std::span(&ring_[ring_end_], kLargestPacket);
}

}  // namespace ckptfs
