#include "parser/source/s3/credentials.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::s3 {
namespace {

// All of them go into the header of each request.
bool IsForHeader(std::string_view text) {
  constexpr size_t kLongest = size_t{16} << 10U;  // Bytes; tokens of AWS have up to 4 KiB.
  return text.size() <= kLongest &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

CredentialsPtr MakeCredentials(std::string access_key, std::string_view secret_key,
                               std::string session_token, std::string origin,
                               std::optional<int64_t> expiry) {
  constexpr std::string_view kVersion = "AWS4";
  if (access_key.empty() || secret_key.empty() || !IsForHeader(access_key) ||
      !IsForHeader(secret_key) || !IsForHeader(session_token)) {
    Fail(EACCES, "the credentials of {} are empty, or have characters in them that no key has",
         origin);
  }
  auto secret = std::make_shared<SecretBytes>(kVersion.size() + secret_key.size());
  const std::span<std::byte> bytes = secret->bytes();
  std::ranges::copy(std::as_bytes(std::span(kVersion)), bytes.begin());
  std::ranges::copy(std::as_bytes(std::span(secret_key)), bytes.subspan(kVersion.size()).begin());
  return std::make_shared<const Credentials>(Credentials{.access_key = std::move(access_key),
                                                         .signing_secret = std::move(secret),
                                                         .session_token = std::move(session_token),
                                                         .expiry = expiry,
                                                         .origin = std::move(origin),
                                                         .endpoint = ""});
}

bool AreSame(const Credentials& a, const Credentials& b) {
  return a.access_key == b.access_key && a.session_token == b.session_token &&
         std::ranges::equal(a.signing_secret->bytes(), b.signing_secret->bytes());
}

}  // namespace ckptfs::s3
