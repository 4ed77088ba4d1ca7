#include "parser/source/http/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <new>
#include <string>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/source/http/url.h"

namespace ckptfs::http {
namespace {

// Far more than honest servers send.
constexpr size_t kMostHeaders = 200;
constexpr size_t kLargestHead = 64 << 10;  // Bytes.

constexpr size_t kLargestBody = 1 << 20;  // Of what no receiver takes.

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

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  std::ranges::transform(lowered, lowered.begin(), Lower);
  return lowered;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool IsGiven(const Request& request, std::string_view name) {
  return std::ranges::any_of(request.headers, [name](const std::string& line) {
    return Lowered(std::string_view(line).substr(0, line.find(':'))) == name;
  });
}

List HeadersOf(const Request& request) {
  List list;
  for (const std::string& line : request.headers) Append(list, line);
  // Bytes of an encoding are not those that ranges count.
  if (!IsGiven(request, "accept-encoding")) Append(list, "Accept-Encoding: identity");
  Append(list, "Expect:");  // No waiting for leave to send a body.
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

// Three digits after "HTTP/1.1 "; 0 if there are none.
int StatusIn(std::string_view line) {
  line.remove_prefix(std::min(line.find(' '), line.size()));
  line = Trimmed(line).substr(0, 3);
  int status = 0;
  std::from_chars(line.data(), line.data() + line.size(), status);
  return status;
}

std::string_view AsText(const char* data, size_t size, size_t count) {
  return {data, size * count};
}

// What libcurl says of `code`, without what it begins with. URLs that it shows, which may be of a
// proxy, may have a password in them.
std::string Tidied(CURLcode code, std::string_view details) {
  if (details.empty() || details.find("://") != std::string_view::npos) {
    details = LibCurl().easy_strerror(code);
  }
  for (const std::string_view prefix : {"SSL certificate problem: ", "SSL: "}) {
    if (details.starts_with(prefix)) details.remove_prefix(prefix.size());
  }
  // Of "error:0A00010B:SSL routines::wrong version number" the end is for people.
  const size_t routines = details.rfind("::");
  if (routines != std::string_view::npos) details.remove_prefix(routines + 2);
  return std::string(Trimmed(details));
}

[[noreturn]] void FailForLargeHead() {
  Fail(ECONNRESET, "the server sends more than {} bytes of headers", kLargestHead);
}

// Whether the proxy of the environment may carry `request`.
bool MayTakeProxy(const Request& request) {
  try {
    const Url url = ParseUrl(request.url);
    return !IsNeverProxied(url.host) && !(request.has_secret && url.scheme == "http");
  } catch (const Error&) {
    return false;  // libcurl may make something of it, but nobody knows what.
  }
}

}  // namespace

Response Transfer::Run(const Connection& connection) {
  CURL* const handle = connection.handle();
  const List headers = HeadersOf(request_);
  std::array<char, CURL_ERROR_SIZE> details = {};
  LibCurl().easy_setopt(handle, CURLOPT_URL, request_.url.c_str());
  LibCurl().easy_setopt(handle, CURLOPT_NOPROXY, MayTakeProxy(request_) ? nullptr : "*");
  LibCurl().easy_setopt(handle, CURLOPT_CUSTOMREQUEST, nullptr);
  SetMethod(handle, request_);
  LibCurl().easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  LibCurl().easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                        static_cast<long>(request_.stall.count()));
  LibCurl().easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request_.deadline.count()));
  LibCurl().easy_setopt(handle, CURLOPT_HEADERFUNCTION, &OnHeader);
  LibCurl().easy_setopt(handle, CURLOPT_HEADERDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_WRITEFUNCTION, &OnBody);
  LibCurl().easy_setopt(handle, CURLOPT_WRITEDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  LibCurl().easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &OnProgress);
  LibCurl().easy_setopt(handle, CURLOPT_XFERINFODATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, details.data());

  const CURLcode code = LibCurl().easy_perform(handle);
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  LibCurl().easy_setopt(handle, CURLOPT_HTTPHEADER, nullptr);
  if (thrown_) std::rethrow_exception(thrown_);
  if (IsCancelled()) Fail(ECANCELED, "the request was given up");
  if (code != CURLE_OK && !is_body_cut_) FailFor(code, handle, details.data());
  if (!has_head_) Fail(ECONNRESET, "the server sends no headers");
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
  return static_cast<Transfer*>(self)->LookAtTheClock(down + up) ? 0 : 1;
}

bool Transfer::IsCancelled() const { return stop_.stop_requested() || Cancellation::IsRequested(); }

bool Transfer::LookAtTheClock(curl_off_t bytes) {
  if (IsCancelled()) return false;
  const Clock::time_point now = Clock::now();
  if (bytes != bytes_) {
    bytes_ = bytes;
    changed_ = now;
  }
  is_stalled_ = now - changed_ >= request_.stall;
  return !is_stalled_;
}

void Transfer::TakeHeader(std::string_view line) {
  if (has_head_) return;  // After a chunked body; nothing we ask for is there.
  head_size_ += line.size();
  if (head_size_ > kLargestHead) FailForLargeHead();
  if (line.starts_with("HTTP/")) {
    response_.headers.clear();
    response_.status = StatusIn(line);
    return;
  }
  line = Trimmed(line);
  if (line.empty()) {
    if (response_.status >= 200) EndHead();  // Those below announce the one that counts.
    return;
  }
  if (response_.headers.size() == kMostHeaders) {
    Fail(ECONNRESET, "the server sends more than {} headers", kMostHeaders);
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  response_.headers.emplace_back(Lowered(Trimmed(line.substr(0, colon))),
                                 Trimmed(line.substr(colon + 1)));
}

void Transfer::EndHead() {
  has_head_ = true;
  is_for_receiver_ = receiver_ != nullptr && receiver_->Begin(response_);
}

void Transfer::TakeBody(std::string_view bytes) {
  if (!has_head_) Fail(ECONNRESET, "the server sends no headers");
  body_size_ += bytes.size();
  if (is_for_receiver_) {
    receiver_->Take(std::as_bytes(std::span(bytes)));
    return;
  }
  const size_t room = kLargestBody - response_.body.size();
  is_body_cut_ = bytes.size() > room;
  response_.body += bytes.substr(0, room);
}

void Transfer::FailFor(CURLcode code, CURL* handle, const char* details) const {
  const double stall = std::chrono::duration<double>(request_.stall).count();
  if (is_stalled_) Fail(ETIMEDOUT, "the server is silent for {:.3g} s", stall);
  long proxy = 0;  // What a proxy answered instead of letting us through.
  LibCurl().easy_getinfo(handle, CURLINFO_HTTP_CONNECTCODE, &proxy);
  if (!has_head_ && proxy == 407) Fail(EACCES, "{}", kProxyWantsPassword);
  if (!has_head_ && proxy >= 300) Fail(ECONNREFUSED, "the proxy answers with status {}", proxy);
  long system_error = 0;
  LibCurl().easy_getinfo(handle, CURLINFO_OS_ERRNO, &system_error);
  const int error = static_cast<int>(system_error);
  const bool is_reset = error == ECONNRESET || error == EPIPE || error == ECONNABORTED;
  const std::string said = Tidied(code, details);
  // libcurl refuses lines of more than 100 KiB by what means that there is no memory, or, since
  // 8.6, by a code of its own. Once the request is sent it takes memory for nothing else.
  constexpr int kTooLarge = 100;
  long sent = 0;
  LibCurl().easy_getinfo(handle, CURLINFO_REQUEST_SIZE, &sent);
  if (!has_head_ && sent > 0 && (code == CURLE_OUT_OF_MEMORY || int{code} == kTooLarge)) {
    FailForLargeHead();
  }
  switch (code) {
    case CURLE_OUT_OF_MEMORY:
      throw std::bad_alloc();
    case CURLE_URL_MALFORMAT:
      Fail(EINVAL, "the URL is malformed");
    case CURLE_COULDNT_RESOLVE_PROXY:
      Fail(EHOSTUNREACH, "the name of the proxy cannot be found");
    case CURLE_COULDNT_RESOLVE_HOST:
      Fail(EHOSTUNREACH, "the name of the host cannot be found");
    case CURLE_COULDNT_CONNECT:
      if (error == ETIMEDOUT) Fail(ETIMEDOUT, "cannot connect: {}", ErrnoText(error));
      Fail(ECONNREFUSED, "cannot connect: {}", error == 0 ? said : ErrnoText(error));
    case CURLE_OPERATION_TIMEDOUT: {
      curl_off_t connected = 0;
      LibCurl().easy_getinfo(handle, CURLINFO_PRETRANSFER_TIME_T, &connected);
      if (connected == 0) Fail(ETIMEDOUT, "the server does not let us connect in {:.3g} s", stall);
      Fail(ETIMEDOUT, "the server takes more than {:.3g} s",
           std::chrono::duration<double>(request_.deadline).count());
    }
    case CURLE_SSL_CACERT_BADFILE:
      Fail(EPROTO, "the file with certificates cannot be used: {}", said);
    case CURLE_PEER_FAILED_VERIFICATION:
      Fail(EPROTO, "the server's certificate is not trusted: {}; -o cacert= names those that are",
           said);
    case CURLE_SSL_CONNECT_ERROR:
      if (is_reset) Fail(ECONNRESET, "connection reset");
      Fail(EPROTO, "there is no secure connection: {}", said);
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_ISSUER_ERROR:
      Fail(EPROTO, "there is no secure connection: {}", said);
    case CURLE_GOT_NOTHING:
      Fail(ECONNRESET, "connection closed without an answer");
    case CURLE_PARTIAL_FILE:
      Fail(ECONNRESET, "connection closed after {} bytes", body_size_);
    default:
      if (is_reset || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR) {
        Fail(ECONNRESET, "connection reset after {} bytes", body_size_);
      }
      Fail(ECONNRESET, "{}", said);
  }
}

}  // namespace ckptfs::http
