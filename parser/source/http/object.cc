#include "parser/source/http/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <memory>
#include <utility>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/io/location.h"
#include "parser/source/http/first_bytes.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/opening.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::http {
namespace {

// Delivers the bytes of a range of one version, after its headers have been validated.
class PartReceiver final : public Receiver {
 public:
  // All of these must outlive this; `done` counts the bytes received in all attempts.
  PartReceiver(const Access& access, const PreparedRequest& prepared, const Version& version,
               ByteRange part, Delivery& delivery, RetryPolicy& retry, uint64_t& done)
      : access_(access),
        prepared_(prepared),
        version_(version),
        part_(part),
        delivery_(delivery),
        retry_(retry),
        done_(done) {}

  void Connected() override { delivery_.Connected(); }

  bool Begin(const Response& response) override {
    delivery_.Answered();
    if (response.status != 200 && response.status != 206) return false;
    access_.ValidateVersion(prepared_, response, version_);
    expected_ = ValidatePart(response, part_, version_);
    return true;
  }

  void Take(std::span<const std::byte> bytes) override {
    if (bytes.size() > expected_ - received_) {
      throw InvalidResponse(fmt::format("response too long: more than {} bytes", expected_));
    }
    delivery_.Take(bytes);
    received_ += bytes.size();
    done_ += bytes.size();
    retry_.Received(done_);
  }

  void Flush() override { delivery_.Flush(); }

  // Throws TransientError if bytes are missing.
  void End() const {
    if (received_ == expected_) return;
    throw TransientError(EREMOTEIO, fmt::format("truncated response (found {} bytes, expected {})",
                                                received_, expected_));
  }

 private:
  const Access& access_;
  const PreparedRequest& prepared_;
  const Version& version_;
  const ByteRange part_;
  Delivery& delivery_;
  RetryPolicy& retry_;
  uint64_t& done_;
  uint64_t expected_ = 0;  // Bytes of the response: some or all of the part.
  uint64_t received_ = 0;
};

// Returns "https://host:port", the only part of a URL that is never secret.
std::string OriginOf(std::string_view url) {
  const Location location = ParseLocation(url);
  return fmt::format("{}://{}", location.scheme, location.authority);
}

class Object final : public RemoteObject {
 public:
  Object(std::string name, std::shared_ptr<Client> client, std::shared_ptr<Access> access,
         const SourceOptions& options, Opened opened)
      : name_(std::move(name)),
        client_(std::move(client)),
        access_(std::move(access)),
        options_(options),
        version_(std::move(opened.version)),
        identity_(std::move(opened.identity)),
        sha256_(opened.sha256),
        download_(std::move(opened.download)),
        head_(opened.first == nullptr
                  ? Head()
                  : Head{opened.first->length(), opened.round_trip, opened.latency}),
        first_(std::move(opened.first)) {}

  std::string name() const override { return name_; }
  uint64_t size() const override { return version_.size; }
  std::string identity() const override { return identity_; }
  std::optional<std::array<std::byte, 32>> sha256() const override { return sha256_; }
  Head head() const override { return head_; }
  void ForgetHead() const override { TakeFirst(); }
  void CloseIdle() const override { client_->CloseIdle(); }

  timespec modified() const override {
    return {.tv_sec = ParseDate(version_.last_modified).value_or(0), .tv_nsec = 0};
  }

  void Fetch(uint64_t offset, uint64_t length, Delivery& delivery,
             const std::stop_token& stop) const override {
    assert(offset <= size() && length <= size() - offset);
    if (length == 0) return;
    if (download_) return download_->Deliver(offset, length, delivery);
    try {
      FetchPart({.offset = offset, .length = length}, delivery, stop);
    } catch (const Error& e) {
      if (e.code() == ESTALE) has_changed_ = true;
      throw;
    }
  }

 private:
  std::unique_ptr<FirstBytes> TakeFirst() const {
    const MutexLock lock(mutex_);
    return std::move(first_);
  }

  void FetchPart(ByteRange range, Delivery& delivery, const std::stop_token& stop) const {
    // Prepare may block, too: it renews credentials.
    const Cancellation::IsCancelled is_cancelled = [&stop] { return stop.stop_requested(); };
    const Cancellation cancellation(is_cancelled);
    RetryPolicy retry(options_, RetryPolicy::Phase::kReading, name_, FormatRange(range));
    uint64_t done = 0;
    auto first = range.offset == 0 ? TakeFirst() : nullptr;
    const auto attempt = [&] {
      if (const auto from_opening = std::move(first)) {
        from_opening->Deliver(range.length, delivery, done, stop);
      }
      if (done == range.length) return true;  // Only the end of the last response was invalid.
      if (has_changed_) FailChanged();
      const ByteRange rest{.offset = range.offset + done, .length = range.length - done};
      std::vector headers = {RangeHeader(rest)};
      if (std::string condition = version_.Condition(); !condition.empty()) {
        headers.push_back(std::move(condition));
      }
      PreparedRequest prepared = access_->Prepare(headers);
      prepared.request.length = rest.length;
      prepared.request.limits = retry.Limits(rest.length);
      PartReceiver receiver(*access_, prepared, version_, rest, delivery, retry, done);
      const Response response = client_->Perform(prepared.request, &receiver, stop);
      if (response.status == 200 || response.status == 206) {
        receiver.End();
        access_->Pin(response);  // If the version of the object is from a listing.
        access_->Succeeded();
        return true;
      }
      ThrowIfTransient(response);
      if (response.status == 412 || response.status == 416) FailChanged();
      if (access_->Recover(prepared, response)) return false;
      Fail(EREMOTEIO, "server returned status {}", response.status);
    };
    // A response with a part of the range is progress.
    while (done < range.length) retry.Run(attempt, stop);
  }

  const std::string name_;
  const std::shared_ptr<Client> client_;
  const std::shared_ptr<Access> access_;
  const SourceOptions options_;
  const Version version_;
  const std::string identity_;
  const std::optional<std::array<std::byte, 32>> sha256_;
  const std::unique_ptr<Download> download_;  // All bytes, or null.
  const Head head_;
  mutable std::atomic<bool> has_changed_ = false;
  mutable Mutex mutex_;
  mutable std::unique_ptr<FirstBytes> first_ GUARDED_BY(mutex_);  // Null once they are taken.
};

}  // namespace

RemoteObjectPtr OpenObject(std::string name, std::shared_ptr<Client> client,
                           std::shared_ptr<Access> access, const SourceOptions& options) {
  Opened opened = Open(name, *client, *access, options);
  return std::make_shared<Object>(std::move(name), std::move(client), std::move(access), options,
                                  std::move(opened));
}

RemoteObjectPtr OpenListedObject(std::string name, std::shared_ptr<Client> client,
                                 std::shared_ptr<Access> access, const SourceOptions& options,
                                 Listed listed) {
  Opened opened = OpenListed(name, *access, std::move(listed));
  return std::make_shared<Object>(std::move(name), std::move(client), std::move(access), options,
                                  std::move(opened));
}

Response PerformWithRetries(Client& client, const std::function<Request()>& prepare,
                            const SourceOptions& options) {
  Request request = prepare();
  Response response;
  bool is_first = true;
  RetryPolicy retry(options, RetryPolicy::Phase::kOpening, OriginOf(request.url), "");
  const std::stop_token never;
  const auto attempt = [&] {
    if (!std::exchange(is_first, false)) request = prepare();
    request.limits = retry.Limits(1 << 20);
    response = client.Perform(request, nullptr, never);
    ThrowIfTransient(response);
    return true;
  };
  retry.Run(attempt, never);
  return response;
}

}  // namespace ckptfs::http
