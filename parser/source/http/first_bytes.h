// The response to the request that opens an object.
//
// A GET of the first bytes returns the length of the object, its version, and whether the server
// supports range requests. HEAD returns less, and more servers answer it incorrectly.
//
// On a long link, the headers arrive a few round trips before the last of these bytes. A thread of
// its own therefore receives the response: the object is open once the headers have arrived, and
// its first bytes are read while they arrive.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/http/download.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::http {

// Receives the first kPrefetchedHead bytes, or the whole object if it is shorter. If the server
// sends all of a longer object, downloads it if the options permit that. Belongs to one thread at a
// time.
class FirstBytes final : private Receiver {
 public:
  // Sends `request`. `client` must outlive this; `options` and `retry` are not used after Await has
  // returned.
  FirstBytes(Client& client, Request request, const SourceOptions& options, RetryPolicy& retry);
  FirstBytes(const FirstBytes&) = delete;
  FirstBytes& operator=(const FirstBytes&) = delete;
  ~FirstBytes() override = default;  // Ends the request.

  // Waits for the headers if these are the first bytes of the object, else for the end of the
  // response. Returns the response, which has no body if is_begun(). Throws Error as
  // Client::Perform does, TransientError if the response is invalid or truncated, or ENOTSUP. Call
  // it before all other methods.
  Response Await();

  // Whether the response is one with bytes of the object.
  bool is_begun() const { return is_begun_; }

  // How long the object is, and how many bytes of it Deliver has. Only if is_begun().
  uint64_t total() const { return total_.value_or(*expected_); }
  uint64_t length() const { return *expected_; }

  // The whole object, if it is longer than the first bytes and the server has sent it; else null.
  std::unique_ptr<Download> TakeDownload() { return total_ ? nullptr : std::move(download_); }

  // Delivers the first `length` bytes, or as many as there are, as they arrive. Increases `done`,
  // which is 0 at first, by what has been delivered. Throws why the response has ended early:
  // TransientError, or Error as Client::Perform does, ECANCELED soon after `stop` is requested.
  void Deliver(uint64_t length, Delivery& delivery, uint64_t& done, const std::stop_token& stop);

 private:
  bool Begin(const Response& response) override;
  void Take(std::span<const std::byte> bytes) override;

  void Receive(const std::stop_token& stop);
  void BeginPart(const Response& response);
  void BeginAll(const Response& response);
  void StartDownload();

  Client& client_;
  const Request request_;
  const SourceOptions& options_;
  RetryPolicy& retry_;

  // Set before Await returns.
  bool is_begun_ = false;
  std::optional<uint64_t> expected_;    // Bytes of this response; known at its end if not before.
  std::optional<uint64_t> total_;       // Bytes of the object, if they are more.
  std::unique_ptr<Download> download_;  // Belongs to thread_ if there is a total_.

  Mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ GUARDED_BY(mutex_) = false;  // The object is; this receives the rest.
  bool has_ended_ GUARDED_BY(mutex_) = false;
  Response response_ GUARDED_BY(mutex_);
  std::exception_ptr error_ GUARDED_BY(mutex_);
  uint64_t available_ GUARDED_BY(mutex_) = 0;  // So many bytes of head_ do not change any more.
  std::vector<std::byte> head_;

  uint64_t received_ = 0;  // Bytes of the response. Belongs to thread_ until has_ended_.

  std::jthread thread_;  // The last member: it uses the others.
};

}  // namespace ckptfs::http
