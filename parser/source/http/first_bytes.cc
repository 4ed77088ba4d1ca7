#include "parser/source/http/first_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "parser/base/blocked_signals.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/io/prefetch.h"
#include "parser/source/http/headers.h"

namespace ckptfs::http {
namespace {

// Some servers (rclone serve s3) answer a range request with status 200 and a Content-Range.
bool HasPart(const Response& response) {
  const auto part = ParseContentRange(response.Find("content-range"));
  return part && part->length < part->total;
}

// While an object is opened, a content encoding is permanent.
void RequireIdentity(const Response& response) {
  try {
    ValidateEncoding(response);
  } catch (const InvalidResponse& error) {
    Fail(ENOTSUP, "{}: no range of the file can be read", error.what());
  }
}

}  // namespace

FirstBytes::FirstBytes(Client& client, Request request, const SourceOptions& options,
                       RetryPolicy& retry)
    : client_(client),
      request_(std::move(request)),
      options_(options),
      retry_(retry),
      head_(kPrefetchedHead) {
  const BlockedSignals blocked;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { Receive(stop); });
  } catch (const std::system_error&) {
    Fail(EAGAIN, "cannot start a thread");
  }
}

void FirstBytes::Receive(const std::stop_token& stop) {
  Response response;
  std::exception_ptr error;
  try {
    response = client_.Perform(request_, this, stop);
    if (!expected_) expected_ = received_;
    if (is_begun_ && received_ != *expected_) {
      throw TransientError(
          EREMOTEIO,
          fmt::format("truncated response (found {} bytes, expected {})", received_, *expected_));
    }
  } catch (...) {
    error = std::current_exception();
  }
  const MutexLock lock(mutex_);
  if (!is_open_) response_ = std::move(response);
  error_ = std::move(error);  // The thread that rethrows it also frees it.
  has_ended_ = true;
  changed_.notify_all();
}

Response FirstBytes::Await() {
  constexpr std::chrono::milliseconds kPollInterval(50);
  MutexLock lock(mutex_);
  while (!is_open_ && !has_ended_) {
    changed_.wait_for(lock, kPollInterval);
    if (Cancellation::IsRequested()) Fail(ECANCELED, "request cancelled");
  }
  if (!is_open_ && error_) std::rethrow_exception(error_);
  return std::move(response_);
}

void FirstBytes::Deliver(uint64_t length, Delivery& delivery, uint64_t& done,
                         const std::stop_token& stop) {
  const std::stop_callback end(stop, [this] { thread_.request_stop(); });
  MutexLock lock(mutex_);
  while (true) {
    const std::span<const std::byte> arrived(head_.data(), std::min(available_, length));
    if (done < arrived.size()) {
      lock.unlock();
      delivery.Take(arrived.subspan(done));
      delivery.Flush();
      done = arrived.size();
      lock.lock();
    } else if (has_ended_ && error_ && done < length) {
      std::rethrow_exception(error_);
    } else if (has_ended_ || (done == length && done < *expected_)) {
      return;  // After the end of the response, so that its connection can be used again.
    } else {
      changed_.wait(lock);
    }
  }
}

bool FirstBytes::Begin(const Response& response) {
  if (response.status == 206 || (response.status == 200 && HasPart(response))) {
    BeginPart(response);
  } else if (response.status == 200) {
    BeginAll(response);
  }
  return is_begun_;
}

void FirstBytes::BeginPart(const Response& response) {
  RequireIdentity(response);
  const ContentRange part = ValidateContentRange(response, 0, kPrefetchedHead);
  expected_ = part.length;
  total_ = part.total;
  is_begun_ = true;
  const MutexLock lock(mutex_);
  response_ = response;
  is_open_ = true;
  changed_.notify_all();
}

void FirstBytes::BeginAll(const Response& response) {
  RequireIdentity(response);
  const std::string_view length = response.Find("content-length");
  expected_ = ParseLength(length);
  if (!expected_ && response.Find("transfer-encoding").empty()) {
    Fail(ENOTSUP, "response without a content length");
  }
  if (expected_ && *expected_ > kPrefetchedHead) StartDownload();
  is_begun_ = true;
}

void FirstBytes::StartDownload() {
  if (!options_.download) {
    Fail(ENOTSUP, "server does not support range requests: use -o download to fetch the file");
  }
  download_ = std::make_unique<Download>(expected_);
  download_->Append(std::span(head_).first(std::min<uint64_t>(received_, head_.size())));
}

void FirstBytes::Take(std::span<const std::byte> bytes) {
  if (expected_ && bytes.size() > *expected_ - received_) {
    throw InvalidResponse(fmt::format("response too long: more than {} bytes", *expected_));
  }
  if (!download_ && bytes.size() > head_.size() - received_) StartDownload();
  if (download_) {
    download_->Append(bytes);
  } else {
    std::memcpy(head_.data() + received_, bytes.data(), bytes.size());
  }
  received_ += bytes.size();
  if (download_ && options_.progress) options_.progress(received_, expected_.value_or(0));
  if (!total_) retry_.Received(received_);  // Await waits for the end.
  if (download_) return;
  const MutexLock lock(mutex_);
  available_ = received_;
  changed_.notify_all();
}

}  // namespace ckptfs::http
