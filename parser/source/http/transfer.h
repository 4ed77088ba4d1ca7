// One request and its answer, as libcurl tells of them.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stop_token>
#include <string_view>

#include "parser/source/http/client.h"
#include "parser/source/http/connection.h"

namespace ckptfs::http {

// Takes what libcurl's callbacks bring: builds the response, bounds it, keeps the clock of a server
// that is silent, and carries exceptions of a receiver through C code. Belongs to one thread.
class Transfer {
 public:
  // All of these must outlive this; `receiver` may be null.
  Transfer(const Request& request, Receiver* receiver, const std::stop_token& stop)
      : request_(request), receiver_(receiver), stop_(stop) {}

  // Sends the request and waits for the end of the answer. Throws Error as Client::Perform does,
  // and what the receiver throws.
  Response Run(const Connection& connection);

  // Whether the connection can be used again: all of the answer has been read.
  bool is_clean() const { return is_clean_; }

 private:
  using Clock = std::chrono::steady_clock;

  static size_t OnHeader(char* data, size_t size, size_t count, void* self) noexcept;
  static size_t OnBody(char* data, size_t size, size_t count, void* self) noexcept;
  static int OnProgress(void* self, curl_off_t total_down, curl_off_t down, curl_off_t total_up,
                        curl_off_t up) noexcept;

  void TakeHeader(std::string_view line);
  void EndHead();
  void TakeBody(std::string_view bytes);

  // Whether nobody wants it any more.
  bool IsCancelled() const;

  // Whether the transfer goes on.
  bool LookAtTheClock(curl_off_t bytes);

  // Throws the Error that tells what `code` of libcurl means.
  [[noreturn]] void FailFor(CURLcode code, CURL* handle, const char* details) const;

  const Request& request_;
  Receiver* const receiver_;
  const std::stop_token& stop_;

  Response response_;
  size_t head_size_ = 0;  // Of all headers so far, in bytes.
  bool has_head_ = false;
  bool is_for_receiver_ = false;
  bool is_body_cut_ = false;
  uint64_t body_size_ = 0;

  std::exception_ptr thrown_;
  bool is_stalled_ = false;
  curl_off_t bytes_ = 0;  // That went either way, when they last changed.
  Clock::time_point changed_ = Clock::now();
  bool is_clean_ = false;
};

}  // namespace ckptfs::http
