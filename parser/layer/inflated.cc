// A deflate stream can only be decoded from its beginning, but tensors are read anywhere. So the
// first read decodes all of the stream, once, into a temporary file that has no name: the kernel
// keeps as much of it in memory as it can, and takes it away when we are gone, however we go.

#include "parser/layer/inflated.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "parser/error.h"
#include "parser/fd.h"

namespace ckptfs {
namespace {

Fd MakeTemporaryFile() {
  const char* const variable = std::getenv("TMPDIR");
  const std::string directory = variable != nullptr && *variable != '\0' ? variable : "/var/tmp";
  Fd unnamed(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (unnamed.number() >= 0) return unnamed;
  // What kernels and file systems say that know no unnamed files.
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
    std::string path = directory + "/ckptfs-XXXXXX";
    Fd named(::mkostemp(path.data(), O_CLOEXEC));
    if (named.number() >= 0 && ::unlink(path.c_str()) == 0) return named;
  }
  FailErrno("cannot make a temporary file in {}", directory);
}

void Write(const Fd& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.number(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot write the inflated bytes to a temporary file");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

// zlib's decoder for streams without a header.
class Inflater {
 public:
  Inflater() {
    constexpr int kRawWithLargestWindow = -15;
    if (::inflateInit2(&stream_, kRawWithLargestWindow) != Z_OK) {
      Fail(ENOMEM, "no memory to inflate with");
    }
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { ::inflateEnd(&stream_); }

  enum class Status { kMore, kEnd, kDamaged };

  // Decodes from the front of `input`, which it shortens, into the front of `output`; returns how
  // many bytes it has made. It makes none only if it needs more input, or has come to an end.
  size_t Run(std::span<const std::byte>& input, std::span<std::byte> output) {
    // zlib does not write to its input, but says so only if built in a certain way.
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(output.data());
    stream_.avail_out = static_cast<uInt>(output.size());
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) Fail(ENOMEM, "no memory to inflate with");
    const bool is_well = result == Z_OK || result == Z_BUF_ERROR;
    status_ = result == Z_STREAM_END ? Status::kEnd : is_well ? Status::kMore : Status::kDamaged;
    input = input.last(stream_.avail_in);
    return output.size() - stream_.avail_out;
  }

  Status status() const { return status_; }

  // What is wrong if the status is kDamaged.
  std::string message() const { return stream_.msg != nullptr ? stream_.msg : "not understood"; }

 private:
  z_stream stream_ = {};
  Status status_ = Status::kMore;
};

// What decoding has come to. A stream that is damaged once is so forever.
struct Decoded {
  Fd file;
  std::string damage;  // Why there is no file; empty if there is one.
};

Decoded Decode(const Extent& deflated, uint64_t size, uint32_t expected_crc) {
  struct Buffers {
    std::array<std::byte, 65536> input;
    std::array<std::byte, 131072> output;
  };
  const auto buffers = std::make_unique_for_overwrite<Buffers>();
  Inflater inflater;
  Decoded decoded{.file = MakeTemporaryFile()};
  std::span<const std::byte> input;
  uint64_t fetched = 0;
  uint64_t written = 0;
  uLong crc = 0;
  const auto damaged = [&](std::string_view what) {
    const uint64_t position = deflated.offset + fetched - input.size();
    return Decoded{.damage = fmt::format("deflate stream at byte {}: {}", position, what)};
  };
  while (inflater.status() != Inflater::Status::kEnd) {
    if (input.empty() && fetched < deflated.length) {
      const auto n = std::min<uint64_t>(buffers->input.size(), deflated.length - fetched);
      deflated.source->ReadAt(deflated.offset + fetched, std::span(buffers->input).first(n));
      input = std::span(buffers->input).first(n);
      fetched += n;
    }
    const size_t made = inflater.Run(input, buffers->output);
    if (inflater.status() == Inflater::Status::kDamaged) return damaged(inflater.message());
    if (made > size - written) {
      return damaged(fmt::format("goes on after the {} bytes that it should decode to", size));
    }
    const auto output = std::span(buffers->output).first(made);
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(output.data()), output.size());
    Write(decoded.file, output);
    written += made;
    const bool is_starved = made == 0 && input.empty() && fetched == deflated.length;
    if (is_starved && inflater.status() == Inflater::Status::kMore) {
      return damaged(fmt::format("is cut off after {} of {} bytes", written, size));
    }
  }
  if (written != size) return damaged(fmt::format("ends after {} of {} bytes", written, size));
  const uint64_t left = deflated.length - fetched + input.size();
  if (left != 0) return damaged(fmt::format("ends, but {} bytes of it are left", left));
  if (expected_crc != 0 && crc != expected_crc) {
    return damaged(fmt::format("CRC-32 of what it decodes to is {:#010x}, but should be {:#010x}",
                               crc, expected_crc));
  }
  return decoded;
}

class InflatedSource final : public ByteSource {
 public:
  InflatedSource(Extent deflated, uint64_t size, uint32_t crc)
      : deflated_(std::move(deflated)),
        size_(size),
        crc_(crc),
        verdict_(crc == 0 ? Verdict::kNone : Verdict::kUnread) {}

  std::string name() const override { return deflated_.source->name(); }
  uint64_t size() const override { return size_; }
  timespec modified() const override { return deflated_.source->modified(); }
  Verdict verdict() const override { return verdict_; }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (buffer.empty()) return;
    const auto future = GetDecoded();
    const Decoded& decoded = future.get();
    if (!decoded.damage.empty()) throw Error(EIO, decoded.damage);
    while (!buffer.empty()) {
      const ssize_t n =
          ::pread(decoded.file.number(), buffer.data(), buffer.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) FailErrno("cannot read a temporary file at byte {}", offset);
      if (n == 0) Fail(EIO, "a temporary file ends at byte {}, but has {} bytes", offset, size_);
      buffer = buffer.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }

 private:
  // Who asks first decodes; the others wait for it. All of them get its failure, and the next one
  // tries again: there may be room on the disk then, or the source may be back.
  std::shared_future<Decoded> GetDecoded() const {
    std::promise<Decoded> promise;
    std::shared_future<Decoded> mine;
    {
      const std::scoped_lock lock(mutex_);
      if (decoded_.valid()) return decoded_;
      mine = decoded_ = promise.get_future().share();
    }
    try {
      Decoded decoded = Decode(deflated_, size_, crc_);
      if (crc_ != 0) verdict_ = decoded.damage.empty() ? Verdict::kRight : Verdict::kWrong;
      promise.set_value(std::move(decoded));
    } catch (...) {
      {
        const std::scoped_lock lock(mutex_);
        decoded_ = {};
      }
      promise.set_exception(std::current_exception());
    }
    return mine;
  }

  const Extent deflated_;
  const uint64_t size_;
  const uint32_t crc_;
  mutable std::atomic<Verdict> verdict_;

  mutable std::mutex mutex_;
  mutable std::shared_future<Decoded> decoded_;  // Not valid before the first read.
};

}  // namespace

ByteSourcePtr MakeInflated(Extent deflated, uint64_t size, uint32_t crc) {
  return std::make_shared<InflatedSource>(std::move(deflated), size, crc);
}

}  // namespace ckptfs
