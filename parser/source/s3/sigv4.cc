#include "parser/source/s3/sigv4.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <span>

#include "parser/base/encoding.h"

namespace ckptfs::s3 {
namespace {

using Hash = HmacOfSha256;
static_assert(sizeof(Hash) == crypto_hash_sha256_BYTES);
static_assert(crypto_hash_sha256_BYTES == crypto_auth_hmacsha256_BYTES);

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string HexOf(const Hash& hash) { return Hex(std::as_bytes(std::span(hash))); }

std::string HexHash(std::string_view text) {
  Hash hash;
  ::crypto_hash_sha256(hash.data(), Bytes(text), text.size());
  return HexOf(hash);
}

}  // namespace

HmacOfSha256 HmacSha256(std::span<const unsigned char> key, std::string_view text) {
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  ::crypto_auth_hmacsha256_update(&state, Bytes(text), text.size());
  Hash hash;
  ::crypto_auth_hmacsha256_final(&state, hash.data());
  ::sodium_memzero(&state, sizeof state);
  return hash;
}

namespace {

// Returns "20130524T000000Z".
std::string FormatBasicTime(std::time_t time) {
  std::tm utc = {};
  ::gmtime_r(&time, &utc);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

std::string CanonicalQuery(const Query& query) {
  std::vector<std::pair<std::string, std::string>> encoded;
  for (const auto& [name, value] : query) {
    encoded.emplace_back(PercentEncode(name), PercentEncode(value));
  }
  std::ranges::sort(encoded);
  std::string canonical;
  for (const auto& [name, value] : encoded) {
    canonical += fmt::format("{}{}={}", canonical.empty() ? "" : "&", name, value);
  }
  return canonical;
}

std::vector<std::string> Sign(const UnsignedRequest& request, const Scope& scope,
                              const Credentials& credentials, std::time_t now) {
  const std::string time = FormatBasicTime(now);
  const std::string day = time.substr(0, 8);
  const std::string body_hash = HexHash(request.body);

  auto headers = request.headers;
  headers.emplace_back("x-amz-content-sha256", body_hash);
  headers.emplace_back("x-amz-date", time);
  if (!credentials.session_token.empty()) {
    headers.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::vector<std::string> lines;
  lines.reserve(headers.size() + 1);
  for (const auto& [name, value] : headers) lines.push_back(fmt::format("{}: {}", name, value));

  headers.emplace_back("host", request.host);
  std::ranges::sort(headers);
  std::string signed_names;
  std::string signed_headers;
  for (const auto& [name, value] : headers) {
    signed_names += fmt::format("{}{}", signed_names.empty() ? "" : ";", name);
    signed_headers += fmt::format("{}:{}\n", name, value);
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            request.query, signed_headers, signed_names, body_hash);

  const std::string where = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, where, HexHash(canonical));

  const std::span<const std::byte> secret = credentials.signing_secret->bytes();
  Hash key =
      HmacSha256({reinterpret_cast<const unsigned char*>(secret.data()), secret.size()}, day);
  key = HmacSha256(key, scope.region);
  key = HmacSha256(key, scope.service);
  key = HmacSha256(key, "aws4_request");
  lines.push_back(
      fmt::format("Authorization: AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
                  credentials.access_key, where, signed_names, HexOf(HmacSha256(key, to_sign))));
  ::sodium_memzero(key.data(), key.size());
  return lines;
}

}  // namespace ckptfs::s3
