// A GET of the first bytes returns the length of the object, its version, and whether the server
// supports range requests. HEAD returns less, and more servers answer it incorrectly.

#include "parser/source/http/opening.h"

#include <fmt/format.h>
#include <sodium.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/io/prefetch.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::http {

Download::Download(std::optional<uint64_t> expected)
    : file_(MakeTemporaryFile()), is_length_known_(expected.has_value()) {
  if (file_.number() < 0) FailErrno("cannot create a temporary file in $TMPDIR or /var/tmp");
  const uint64_t free = FreeSpace();
  if (expected && *expected > free) {
    Fail(ENOSPC,
         "not enough space for the download in $TMPDIR or /var/tmp (found {} bytes, expected {})",
         free, *expected);
  }
}

uint64_t Download::FreeSpace() const {
  struct statvfs disk = {};
  if (::fstatvfs(file_.number(), &disk) != 0) return UINT64_MAX;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

void Download::Append(std::span<const std::byte> bytes) {
  if (!is_length_known_) {
    const uint64_t free = FreeSpace();
    if (free < bytes.size() || size_ + bytes.size() > free - bytes.size()) {
      Fail(ENOSPC,
           "download of unknown length takes more than half of the space in $TMPDIR or /var/tmp: "
           "{} bytes so far",
           size_);
    }
  }
  while (!bytes.empty()) {
    const ssize_t n =
        ::pwrite(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot write byte {} of the download in $TMPDIR or /var/tmp", size_);
    bytes = bytes.subspan(static_cast<size_t>(n));
    size_ += static_cast<uint64_t>(n);
  }
}

void Download::Deliver(uint64_t offset, uint64_t length, Delivery& delivery) const {
  while (length > 0) {
    const std::span<std::byte> all = delivery.room();
    const std::span<std::byte> room = all.first(std::min<uint64_t>(all.size(), length));
    const ssize_t n = ::pread(file_.number(), room.data(), room.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot read byte {} of the download", offset);
    if (n == 0) Fail(EIO, "unexpected end of the download at byte {}", offset);
    delivery.Arrived(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
    length -= static_cast<uint64_t>(n);
  }
}

namespace {

// Receives the first kPrefetchedHead bytes, or the whole object if it is shorter. If the server
// sends all of a longer object, downloads it if the options permit that.
class FirstBytes final : public Receiver {
 public:
  // All of these must outlive this.
  FirstBytes(const SourceOptions& options, RetryPolicy& retry) : options_(options), retry_(retry) {}

  bool Begin(const Response& response) override {
    if (response.status == 206 || (response.status == 200 && HasPart(response))) {
      BeginPart(response);
    } else if (response.status == 200) {
      BeginAll(response);
    }
    return is_begun_;
  }

  void Take(std::span<const std::byte> bytes) override {
    if (expected_ && bytes.size() > *expected_ - received_) {
      throw TransientError(EREMOTEIO,
                           fmt::format("response too long: more than {} bytes", *expected_));
    }
    received_ += bytes.size();
    if (!download_ && received_ > kPrefetchedHead) StartDownload();
    if (download_) {
      download_->Append(bytes);
      if (options_.progress) options_.progress(received_, expected_.value_or(0));
    }
    const size_t rest = kPrefetchedHead - head_.size();
    const auto first = bytes.first(std::min(rest, bytes.size()));
    head_.insert(head_.end(), first.begin(), first.end());
    retry_.Received(received_);
  }

  // Whether the response was one with bytes of the object.
  bool is_begun() const { return is_begun_; }

  // Moves the result into `opened`. Throws TransientError if bytes are missing.
  void End(const Response& response, Opened& opened) {
    if (expected_ && received_ != *expected_) {
      throw TransientError(
          EREMOTEIO,
          fmt::format("truncated response (found {} bytes, expected {})", received_, *expected_));
    }
    opened.version = ParseVersion(response, total_.value_or(received_));
    opened.head = std::move(head_);
    opened.download = std::move(download_);
  }

 private:
  // Some servers (rclone serve s3) answer a range request with status 200 and a Content-Range.
  static bool HasPart(const Response& response) {
    const auto part = ParseContentRange(response.Find("content-range"));
    return part && part->length < part->total;
  }

  void BeginPart(const Response& response) {
    RequireIdentity(response);
    const std::string_view content_range = response.Find("content-range");
    const auto part = ParseContentRange(content_range);
    if (!part || part->offset != 0 || part->length != std::min(kPrefetchedHead, part->total)) {
      throw TransientError(EREMOTEIO,
                           fmt::format("unexpected content range (found {})",
                                       content_range.empty() ? "none" : Quoted(content_range)));
    }
    const std::string_view length = response.Find("content-length");
    if (!length.empty() && ParseLength(length) != part->length) {
      throw TransientError(EREMOTEIO,
                           fmt::format("unexpected content length (found {}, expected {})",
                                       Quoted(length), part->length));
    }
    expected_ = part->length;
    total_ = part->total;
    is_begun_ = true;
  }

  void BeginAll(const Response& response) {
    RequireIdentity(response);
    const std::string_view length = response.Find("content-length");
    expected_ = ParseLength(length);
    if (!expected_ && response.Find("transfer-encoding").empty()) {
      Fail(ENOTSUP, "response without a content length");
    }
    if (expected_ && *expected_ > kPrefetchedHead) StartDownload();
    is_begun_ = true;
  }

  // While an object is opened, a content encoding is permanent.
  static void RequireIdentity(const Response& response) {
    try {
      ValidateEncoding(response);
    } catch (const TransientError& error) {
      Fail(ENOTSUP, "{}: no range of the file can be read", error.what());
    }
  }

  void StartDownload() {
    if (!options_.download) {
      Fail(ENOTSUP, "server does not support range requests: use -o download to fetch the file");
    }
    download_ = std::make_unique<Download>(expected_);
    download_->Append(head_);
  }

  const SourceOptions& options_;
  RetryPolicy& retry_;
  bool is_begun_ = false;
  std::optional<uint64_t> expected_;  // Bytes of this response.
  std::optional<uint64_t> total_;     // Bytes of the object, if they are more.
  uint64_t received_ = 0;
  std::vector<std::byte> head_;
  std::unique_ptr<Download> download_;
};

// Hashes the URL and the version: the query of a URL may be secret, and may identify the object.
std::string IdentityOf(const std::string& name, const std::string& url, const Version& version,
                       const std::string& pin) {
  if (!IsStrongTag(version.tag) && pin.empty()) return {};
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}", name, url, version.tag, pin, version.size);
  std::array<unsigned char, crypto_generichash_BYTES> hash = {};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return name + " " + Hex(std::as_bytes(std::span(hash)));
}

void WarnOfWeakVersion(const std::string& name, const Version& version,
                       const SourceOptions& options) {
  if (!version.tag.empty() || version.size == 0 || !options.warn) return;
  options.warn(fmt::format(
      "{}: {}", name,
      version.last_modified.empty()
          ? "response without ETag and Last-Modified: changes of the same length are not detected"
          : "response without ETag: changes of the same length within one second are not "
            "detected"));
}

}  // namespace

Opened OpenListed(const std::string& name, Access& access, Version version) {
  Opened opened;
  opened.version = std::move(version);
  opened.identity = IdentityOf(name, access.Prepare({}).request.url, opened.version, "");
  return opened;
}

Opened Open(const std::string& name, Client& client, Access& access, const SourceOptions& options) {
  constexpr int kRangeNotSatisfiable = 416;
  RetryPolicy retry(options, RetryPolicy::Phase::kOpening, name, "");
  Opened opened;
  std::string url;  // Before redirects, whose targets may change.
  std::string pin;
  bool asks_for_part = true;
  const std::stop_token never;
  const auto attempt = [&] {
    PreparedRequest prepared = access.Prepare(
        asks_for_part ? std::vector{RangeHeader({.offset = 0, .length = kPrefetchedHead})}
                      : std::vector<std::string>());
    prepared.request.limits = retry.Limits(options.download ? UINT64_MAX : kPrefetchedHead);
    if (url.empty()) url = prepared.request.url;
    FirstBytes first(options, retry);
    const Response response = client.Perform(prepared.request, &first, never);
    if (first.is_begun()) {
      first.End(response, opened);
      pin = access.Pin(response);
      access.Succeeded();
      return true;
    }
    if (response.status == kRangeNotSatisfiable && asks_for_part) {
      const auto range = ParseContentRange(response.Find("content-range"));
      if (range && range->total == 0) {
        opened.version = ParseVersion(response, 0);
        return true;
      }
      asks_for_part = false;  // Some servers omit the length: fetch the short object whole.
      return false;
    }
    ThrowIfTransient(response);
    if (access.Recover(prepared, response)) return false;
    Fail(EREMOTEIO, "server returned status {}", response.status);
  };
  retry.Run(attempt, never);
  WarnOfWeakVersion(name, opened.version, options);
  opened.identity = IdentityOf(name, url, opened.version, pin);
  return opened;
}

}  // namespace ckptfs::http
