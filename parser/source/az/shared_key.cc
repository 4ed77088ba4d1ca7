#include "parser/source/az/shared_key.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs::az {
namespace {

using Headers = std::map<std::string, std::string>;

// Returns the headers by their names in lower case.
Headers ParseHeaders(const std::vector<std::string>& lines) {
  Headers headers;
  for (const std::string_view line : lines) {
    const size_t colon = std::min(line.find(':'), line.size());
    const size_t value = std::min(colon + 1, line.size());
    headers[ToLower(line.substr(0, colon))] = Trim(line.substr(value));
  }
  return headers;
}

std::string EncodeBase64(std::span<const unsigned char> bytes) {
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string encoded(sodium_base64_ENCODED_LEN(bytes.size(), kVariant), '\0');
  sodium_bin2base64(encoded.data(), encoded.size(), bytes.data(), bytes.size(), kVariant);
  encoded.pop_back();  // The NUL.
  return encoded;
}

std::string StringToSign(const UnsignedGet& request, const std::string& account) {
  // The order of the specification. There is no body, and x-ms-date takes the place of Date.
  constexpr std::array<const char*, 11> kSigned = {"content-encoding",
                                                   "content-language",
                                                   "content-length",
                                                   "content-md5",
                                                   "content-type",
                                                   "date",
                                                   "if-modified-since",
                                                   "if-match",
                                                   "if-none-match",
                                                   "if-unmodified-since",
                                                   "range"};
  const Headers headers = ParseHeaders(request.headers);
  std::string text = "GET\n";
  for (const char* const name : kSigned) {
    const auto found = headers.find(name);
    text += (found == headers.end() ? "" : found->second) + "\n";
  }
  for (const auto& [name, value] : headers) {
    if (name.starts_with("x-ms-")) text += fmt::format("{}:{}\n", name, value);
  }
  text += fmt::format("/{}{}", account, request.path);
  s3::Query query = request.query;
  std::ranges::sort(query);
  for (const auto& [name, value] : query) text += fmt::format("\n{}:{}", name, value);
  return text;
}

}  // namespace

std::shared_ptr<const SecretBytes> ParseKey(std::string_view base64, std::string_view origin) {
  std::array<unsigned char, 256> bytes = {};  // A key has 64 bytes.
  size_t size = 0;
  const bool is_valid =
      ::sodium_base642bin(bytes.data(), bytes.size(), base64.data(), base64.size(), nullptr, &size,
                          nullptr, sodium_base64_VARIANT_ORIGINAL) == 0 &&
      size > 0;
  std::shared_ptr<const SecretBytes> key;
  if (is_valid) {
    key = std::make_shared<const SecretBytes>(std::as_bytes(std::span(bytes).first(size)));
  }
  ::sodium_memzero(bytes.data(), bytes.size());
  if (!is_valid) Fail(EACCES, "{} is not a key in base64", origin);
  return key;
}

std::string Sign(const UnsignedGet& request, const Account& account) {
  const std::span<const std::byte> key = account.key->bytes();
  const auto signature =
      s3::HmacSha256({reinterpret_cast<const unsigned char*>(key.data()), key.size()},
                     StringToSign(request, account.name));
  return fmt::format("Authorization: SharedKey {}:{}", account.name, EncodeBase64(signature));
}

std::string FormatHttpDate(std::time_t time) {
  // Not strftime, which depends on the locale.
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc = {};
  ::gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
                     kDays.at(static_cast<size_t>(utc.tm_wday)), utc.tm_mday,
                     kMonths.at(static_cast<size_t>(utc.tm_mon)), utc.tm_year + 1900, utc.tm_hour,
                     utc.tm_min, utc.tm_sec);
}

}  // namespace ckptfs::az
