// Each thread that performs a request leases a libcurl handle, with the connections that it keeps
// open, and returns it. Handles share addresses and TLS sessions only, so threads hardly wait for
// each other.

#include "parser/source/http/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"
#include "parser/source/curl.h"
#include "parser/source/http/connection_pool.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/url.h"

namespace ckptfs::http {
namespace {

// Far more than real servers send.
constexpr size_t kMostHeaders = 200;
constexpr size_t kLargestHead = 64 << 10;  // Bytes.

struct FreeList {
  void operator()(curl_slist* list) const noexcept { LibCurl().slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, FreeList>;

void Append(List& list, const std::string& line) {
  curl_slist* const longer = LibCurl().slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  static_cast<void>(list.release());
  list.reset(longer);
}

bool HasHeader(const Request& request, std::string_view name) {
  return std::ranges::any_of(request.headers, [name](const std::string& line) {
    return ToLower(std::string_view(line).substr(0, line.find(':'))) == name;
  });
}

List BuildHeaders(const Request& request) {
  List list;
  for (const std::string& line : request.headers) Append(list, line);
  // Ranges count the bytes of the object, not those of an encoding.
  if (!HasHeader(request, "accept-encoding")) Append(list, "Accept-Encoding: identity");
  Append(list, "Expect:");  // Send a body without waiting for "100 Continue".
  if (request.body.empty()) Append(list, "Content-Type:");
  return list;
}

void SetMethod(CURL* handle, const Request& request) {
  if (request.method == "HEAD") {
    LibCurl().easy_setopt(handle, CURLOPT_NOBODY, 1L);
    return;
  }
  LibCurl().easy_setopt(handle, CURLOPT_HTTPGET, 1L);
  if (request.method == "GET") return;
  LibCurl().easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                        static_cast<curl_off_t>(request.body.size()));
  LibCurl().easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  LibCurl().easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

// Parses the three digits after "HTTP/1.1 "; 0 if they are malformed.
int ParseStatus(std::string_view line) {
  line.remove_prefix(std::min(line.find(' '), line.size()));
  return ParseNumber<uint16_t>(Trim(line).substr(0, 3)).value_or(0);
}

[[noreturn]] void FailForLargeHead() {
  throw InvalidResponse(
      fmt::format("response headers too large: more than {} bytes", kLargestHead));
}

// Whether the proxy of the environment may carry `request`.
bool MayUseProxy(const Request& request) {
  try {
    const Url url = ParseUrl(request.url);
    return !IsNeverProxied(url.host) && !(request.has_secret && url.scheme == "http");
  } catch (const Error&) {
    return false;  // libcurl may parse it, but differently.
  }
}

// One request and its response. Bounds the response, detects stalls, and carries exceptions of the
// receiver through C code. Belongs to one thread.
class Transfer {
 public:
  // All of these must outlive this; `receiver` may be null.
  Transfer(const Request& request, Receiver* receiver, Lease& lease, const std::stop_token& stop)
      : request_(request), receiver_(receiver), lease_(lease), stop_(stop) {}

  // Sends the request and waits for the end of the response. Throws Error as Client::Perform does,
  // and the exceptions of the receiver.
  Response Run(const CurlConnection& connection);

  // Whether the connection can be reused: all of the response has been read.
  bool is_clean() const { return is_clean_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Callbacks of libcurl.
  static size_t OnHeader(char* data, size_t size, size_t count, void* self) noexcept;
  static size_t OnBody(char* data, size_t size, size_t count, void* self) noexcept;
  static int OnProgress(void* self, curl_off_t total_down, curl_off_t down, curl_off_t total_up,
                        curl_off_t up) noexcept;
  static int OnConnected(void* self, char* remote, char* local, int remote_port,
                         int local_port) noexcept;

  void TakeHeader(std::string_view line);
  void EndHead();

  // How long it took from the call until an event.
  std::chrono::microseconds Elapsed(CURLINFO until) const;

  void TakeBody(std::string_view bytes);
  void FlushBody();
  void AdaptLowWater();
  void SetLowWater(size_t bytes);

  bool IsCancelled() const { return stop_.stop_requested() || Cancellation::IsRequested(); }

  // Records that `bytes` of bodies have been transferred so far. Returns whether the transfer
  // continues.
  bool CheckProgress(curl_off_t bytes);

  // Returns the longest time without data, in the present state.
  std::chrono::milliseconds StallLimit() const {
    return head_size_ == 0 ? request_.limits.first_byte : request_.limits.stall;
  }

  [[noreturn]] void ThrowError(CURLcode code, CURL* handle, const char* details) const;

  const Request& request_;
  Receiver* const receiver_;
  Lease& lease_;
  const std::stop_token& stop_;
  CURL* handle_ = nullptr;  // Of the connection.

  Response response_;
  size_t head_size_ = 0;  // Bytes of all headers so far, and of trailers.
  bool has_head_ = false;
  bool is_for_receiver_ = false;
  bool is_body_cut_ = false;
  uint64_t body_size_ = 0;
  uint64_t flushed_ = 0;      // Of it.
  uint64_t body_length_ = 0;  // That the header announces; 0 if it does not.
  size_t low_water_ = 1;
  Clock::time_point begun_;  // When the head had arrived.

  std::exception_ptr thrown_;
  bool is_stalled_ = false;
  uint64_t transferred_ = 0;  // Bytes of bodies and headers, at the time `changed_`.
  Clock::time_point changed_ = Clock::now();
  bool is_clean_ = false;
};

std::string_view AsText(const char* data, size_t size, size_t count) {
  return {data, size * count};
}

Response Transfer::Run(const CurlConnection& connection) {
  CURL* const handle = handle_ = connection.handle();
  const List headers = BuildHeaders(request_);
  std::array<char, CURL_ERROR_SIZE> details = {};
  LibCurl().easy_setopt(handle, CURLOPT_URL, request_.url.c_str());
  LibCurl().easy_setopt(handle, CURLOPT_NOPROXY, MayUseProxy(request_) ? nullptr : "*");
  LibCurl().easy_setopt(handle, CURLOPT_CUSTOMREQUEST, nullptr);
  SetMethod(handle, request_);
  LibCurl().easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  LibCurl().easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                        static_cast<long>(request_.limits.connect.count()));
  LibCurl().easy_setopt(handle, CURLOPT_TIMEOUT_MS,
                        static_cast<long>(request_.limits.deadline.count()));
  LibCurl().easy_setopt(handle, CURLOPT_HEADERFUNCTION, &OnHeader);
  LibCurl().easy_setopt(handle, CURLOPT_HEADERDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_WRITEFUNCTION, &OnBody);
  LibCurl().easy_setopt(handle, CURLOPT_WRITEDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  LibCurl().easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &OnProgress);
  LibCurl().easy_setopt(handle, CURLOPT_XFERINFODATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_PREREQFUNCTION, &OnConnected);
  LibCurl().easy_setopt(handle, CURLOPT_PREREQDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, details.data());

  const CURLcode code = LibCurl().easy_perform(handle);
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  LibCurl().easy_setopt(handle, CURLOPT_HTTPHEADER, nullptr);
  if (thrown_) std::rethrow_exception(thrown_);
  FlushBody();
  if (IsCancelled()) Fail(ECANCELED, "request cancelled");
  if (code != CURLE_OK && !is_body_cut_) ThrowError(code, handle, details.data());
  if (!has_head_) throw InvalidResponse("response without headers");
  is_clean_ = code == CURLE_OK;

  const char* location = nullptr;
  if (response_.status / 100 == 3 &&
      LibCurl().easy_getinfo(handle, CURLINFO_REDIRECT_URL, &location) == CURLE_OK &&
      location != nullptr) {
    response_.location = location;
  }
  return std::move(response_);
}

size_t Transfer::OnHeader(char* data, size_t size, size_t count, void* self) noexcept {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    transfer.TakeHeader(AsText(data, size, count));
  } catch (...) {
    transfer.thrown_ = std::current_exception();
    return 0;
  }
  return size * count;
}

size_t Transfer::OnBody(char* data, size_t size, size_t count, void* self) noexcept {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    transfer.TakeBody(AsText(data, size, count));
  } catch (...) {
    transfer.thrown_ = std::current_exception();
    return 0;
  }
  return transfer.is_body_cut_ ? 0 : size * count;
}

int Transfer::OnProgress(void* self, curl_off_t /*total_down*/, curl_off_t down,
                         curl_off_t /*total_up*/, curl_off_t up) noexcept {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    transfer.FlushBody();
  } catch (...) {
    transfer.thrown_ = std::current_exception();
    return 1;
  }
  return transfer.CheckProgress(down + up) ? 0 : 1;
}

int Transfer::OnConnected(void* self, char* /*remote*/, char* /*local*/, int /*remote_port*/,
                          int /*local_port*/) noexcept {
  auto& transfer = *static_cast<Transfer*>(self);
  const auto handshake = transfer.lease_.connection().Handshake();
  transfer.lease_.Connected(handshake, transfer.request_.connections);
  return CURL_PREREQFUNC_OK;
}

bool Transfer::CheckProgress(curl_off_t bytes) {
  constexpr std::chrono::milliseconds kPaused(100);
  if (IsCancelled()) return false;
  const Clock::time_point now = Clock::now();
  const auto transferred = static_cast<uint64_t>(bytes) + head_size_;
  if (transferred != transferred_) {
    transferred_ = transferred;
    changed_ = now;
  } else if (now - changed_ > kPaused) {
    SetLowWater(1);  // The rate has fallen.
  }
  is_stalled_ = now - changed_ >= StallLimit();
  return !is_stalled_;
}

void Transfer::TakeHeader(std::string_view line) {
  head_size_ += line.size();
  if (head_size_ > kLargestHead) FailForLargeHead();
  if (has_head_) return;  // Trailers of a chunked body are ignored, but libcurl keeps them.
  if (line.starts_with("HTTP/")) {
    response_.headers.clear();
    response_.status = ParseStatus(line);
    return;
  }
  line = Trim(line);
  if (line.empty()) {
    if (response_.status >= 200) EndHead();  // Responses 1xx precede the final one.
    return;
  }
  if (response_.headers.size() == kMostHeaders) {
    throw InvalidResponse(fmt::format("too many response headers: more than {}", kMostHeaders));
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  response_.headers.emplace_back(ToLower(Trim(line.substr(0, colon))),
                                 Trim(line.substr(colon + 1)));
}

std::chrono::microseconds Transfer::Elapsed(CURLINFO until) const {
  curl_off_t elapsed = 0;
  LibCurl().easy_getinfo(handle_, until, &elapsed);
  return std::chrono::microseconds(elapsed);
}

void Transfer::EndHead() {
  ValidateLengthHeaders(response_);
  has_head_ = true;
  begun_ = Clock::now();
  body_length_ = ParseLength(response_.Find("content-length")).value_or(0);
  response_.round_trip =
      lease_.Answered(Elapsed(CURLINFO_PRETRANSFER_TIME_T), lease_.connection().Handshake());
  response_.latency = Elapsed(CURLINFO_STARTTRANSFER_TIME_T) - Elapsed(CURLINFO_PRETRANSFER_TIME_T);
  if (response_.status / 100 != 2) lease_.ForgetSpare();
  is_for_receiver_ = receiver_ != nullptr && receiver_->Begin(response_);
}

// While a long response flows, wakes this thread once for all that arrives in kPause, instead of
// for each few packets. Slow start is not slowed down: the rate is that since the head arrived.
void Transfer::AdaptLowWater() {
  constexpr uint64_t kLong = 256 << 10;
  constexpr std::chrono::duration<double> kPause{0.016};
  constexpr std::chrono::duration<double> kShortest{0.01};
  constexpr double kMost = 256 << 10;
  size_t wanted = 1;
  if (body_length_ >= kLong && body_length_ > body_size_) {
    const std::chrono::duration<double> elapsed = Clock::now() - begun_;
    const double arriving =
        static_cast<double>(body_size_) * (kPause / std::max(elapsed, kShortest));
    wanted = std::bit_floor(static_cast<size_t>(std::min(arriving, kMost)) | 1U);
    // No others follow the last bytes.
    const uint64_t rest = body_length_ - body_size_;
    if (rest < 2 * wanted) wanted = rest <= wanted ? rest : rest / 2;
  }
  SetLowWater(wanted);
}

void Transfer::SetLowWater(size_t bytes) {
  // libcurl takes one record of TLS each time that it is woken.
  if (bytes == low_water_ || !request_.url.starts_with("http://")) return;
  low_water_ = bytes;
  lease_.connection().SetLowWater(bytes);
}

void Transfer::TakeBody(std::string_view bytes) {
  if (!has_head_) throw InvalidResponse("response without headers");
  body_size_ += bytes.size();
  if (is_for_receiver_) {
    receiver_->Take(std::as_bytes(std::span(bytes)));
    return;
  }
  const size_t room = request_.largest_body - response_.body.size();
  is_body_cut_ = bytes.size() > room;
  response_.body += bytes.substr(0, room);
}

// libcurl passes what it has received on in pieces of 16 KiB.
void Transfer::FlushBody() {
  if (flushed_ == body_size_) return;
  flushed_ = body_size_;
  lease_.Received(body_size_);
  AdaptLowWater();
  if (is_for_receiver_) receiver_->Flush();
}

void Transfer::ThrowError(CURLcode code, CURL* handle, const char* details) const {
  using Seconds = std::chrono::duration<double>;
  if (is_stalled_) {
    Fail(ETIMEDOUT, "no data received for {:.3g} s", Seconds(StallLimit()).count());
  }
  long proxy_status = 0;  // Of the response to CONNECT.
  LibCurl().easy_getinfo(handle, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
  if (!has_head_ && proxy_status == 407) Fail(EACCES, "{}", kProxyNeedsPassword);
  if (!has_head_ && proxy_status >= 300) {
    Fail(ECONNREFUSED, "proxy returned status {}", proxy_status);
  }
  // libcurl reports header lines of more than 100 KiB as out of memory or, since 8.6, by a code of
  // its own. Once the request is sent it allocates memory for nothing else.
  constexpr int kTooLarge = 100;
  long sent = 0;
  LibCurl().easy_getinfo(handle, CURLINFO_REQUEST_SIZE, &sent);
  if (!has_head_ && sent > 0 && (code == CURLE_OUT_OF_MEMORY || int{code} == kTooLarge)) {
    FailForLargeHead();
  }
  curl_off_t connected = 0;
  LibCurl().easy_getinfo(handle, CURLINFO_PRETRANSFER_TIME_T, &connected);
  if (code == CURLE_OPERATION_TIMEDOUT && connected != 0) {
    Fail(ETIMEDOUT, "request timed out after {:.3g} s", Seconds(request_.limits.deadline).count());
  }
  if (code == CURLE_GOT_NOTHING) Fail(ECONNRESET, "connection closed without a response");
  if (code == CURLE_PARTIAL_FILE) {
    Fail(ECONNRESET, "connection closed after {} bytes", body_size_);
  }
  if (code == CURLE_RECV_ERROR && std::string_view(details).find("chunk") != std::string::npos) {
    throw InvalidResponse(
        fmt::format("invalid response: malformed chunk after {} bytes", body_size_));
  }
  if (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR) {
    Fail(ECONNRESET, "connection reset after {} bytes", body_size_);
  }
  ThrowCurlError(code, handle, details, request_.limits.connect);
}

// The files are opened again for each connection, whatever the working directory is then.
std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).string();
}

// Returns the certificates of the option or of the environment, as the curl program does: libcurl
// itself does not read these variables.
TrustedCertificates FindCertificates(const std::string& ca_file) {
  if (!ca_file.empty()) return {.file = Absolute(ca_file), .directory = ""};
  const std::string bundle = GetEnvironment("CURL_CA_BUNDLE");
  if (!bundle.empty()) return {.file = Absolute(bundle), .directory = ""};
  return {.file = Absolute(GetEnvironment("SSL_CERT_FILE")),
          .directory = Absolute(GetEnvironment("SSL_CERT_DIR"))};
}

}  // namespace

std::string_view Response::Find(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::string_view() : found->second;
}

Client::Client(const Options& options)
    : pool_(std::make_unique<ConnectionPool>(FindCertificates(options.ca_file),
                                             options.user_agent)) {}

Client::~Client() = default;

void Client::CloseIdle() { pool_->CloseIdle(); }

Response Client::Perform(const Request& request, Receiver* receiver, const std::stop_token& stop) {
  const auto lease = pool_->Take(request.length);
  if (receiver != nullptr) receiver->Connected();
  Transfer transfer(request, receiver, *lease, stop);
  Response response;
  {
    const std::stop_callback end(stop, [&lease] { lease->connection().ShutDown(); });
    response = transfer.Run(lease->connection());
  }
  if (transfer.is_clean() && !stop.stop_requested()) lease->Keep();
  return response;
}

}  // namespace ckptfs::http
