// Fetches an object over HTTP as fast as ranges of it can be fetched, and does nothing with it:
//
//   fetcher URL SIZE RANGE THREADS
//
// fetches SIZE bytes in ranges of RANGE bytes, THREADS of them in flight, and prints how many
// seconds that took. What a reader of remote checkpoints can reach at most. $CURL_CA_BUNDLE has the
// certificates to trust, if not those of the system.

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

struct CloseHandle {
  void operator()(CURL* handle) const { ::curl_easy_cleanup(handle); }
};

size_t Drop(char* /*bytes*/, size_t size, size_t count, void* total) {
  *static_cast<uint64_t*>(total) += size * count;
  return size * count;
}

uint64_t NumberOf(std::string_view text) {
  uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) Fail(EINVAL, "{}: no number", text);
  return number;
}

// Fetches the ranges that nobody has begun yet, one after another.
void Fetch(const std::string& url, uint64_t size, uint64_t range, std::atomic<uint64_t>& next) {
  const std::unique_ptr<CURL, CloseHandle> handle(::curl_easy_init());
  uint64_t received = 0;
  ::curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(handle.get(), CURLOPT_BUFFERSIZE, 512L << 10U);
  if (const char* file = std::getenv("CURL_CA_BUNDLE")) {
    ::curl_easy_setopt(handle.get(), CURLOPT_CAINFO, file);
  }
  ::curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, &Drop);
  ::curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &received);
  while (true) {
    const uint64_t begin = next.fetch_add(range);
    if (begin >= size) return;
    const uint64_t end = std::min(size, begin + range);
    received = 0;
    const std::string wanted = fmt::format("{}-{}", begin, end - 1);
    ::curl_easy_setopt(handle.get(), CURLOPT_RANGE, wanted.c_str());
    const CURLcode code = ::curl_easy_perform(handle.get());
    if (code != CURLE_OK) Fail(EIO, "{}: {}", url, ::curl_easy_strerror(code));
    if (received != end - begin) {
      Fail(EIO, "{}: has sent {} bytes instead of {}", url, received, end - begin);
    }
  }
}

// Returns the seconds that all of it took.
double FetchAll(const std::string& url, uint64_t size, uint64_t range, uint64_t threads) {
  std::atomic<uint64_t> next = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::future<void>> fetches;
  for (uint64_t i = 0; i < threads; ++i) {
    fetches.push_back(std::async(std::launch::async, [&] { Fetch(url, size, range, next); }));
  }
  for (auto& fetch : fetches) fetch.get();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: fetcher URL SIZE RANGE THREADS\n");
    return 2;
  }
  try {
    ::curl_global_init(CURL_GLOBAL_DEFAULT);
    const uint64_t range = std::max<uint64_t>(1, ckptfs::NumberOf(argv[3]));
    fmt::print("{:.6f}\n", ckptfs::FetchAll(argv[1], ckptfs::NumberOf(argv[2]), range,
                                            ckptfs::NumberOf(argv[4])));
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "fetcher: {}\n", e.what());
    return 1;
  }
}
