#include "parser/source/s3/response.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <pugixml.hpp>
#include <span>
#include <string>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/json_reader.h"
#include "parser/io/simple_sources.h"
#include "parser/source/http/headers.h"

namespace ckptfs::s3 {
namespace {

class StringCollector final : public json::Visitor {
 public:
  void Begin(bool is_object) override {
    if (depth_++ == 0 && !is_object) Fail(EBADMSG, "not a JSON object");
  }
  void End(bool /*is_object*/) override { --depth_; }
  void Key(std::string& key) override {
    if (depth_ == 1) key_ = std::move(key);
  }
  void Text(std::string& text) override {
    if (depth_ == 1) texts_[key_] = std::move(text);
  }

  std::map<std::string, std::string> Take() { return std::move(texts_); }

 private:
  size_t depth_ = 0;
  std::string key_;
  std::map<std::string, std::string> texts_;
};

// Returns the members of a JSON object that are strings. Throws Error(EBADMSG) if `json` is not an
// object.
std::map<std::string, std::string> ParseStringMembers(const std::string& json) {
  const MemorySource source(json);
  Budget budget = Budget::ForFile(source.size());
  StringCollector collector;
  json::Read(source, 0, source.size(), budget, collector, json::Dialect::kPython);
  return collector.Take();
}

// Returns an error code, which is a word; empty for anything else, which could contain a secret.
std::string FilterCode(std::string_view text) {
  const bool is_word = !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_';
  });
  return is_word ? std::string(text) : std::string();
}

std::optional<int64_t> ParseExpiry(const std::string& text, const std::string& origin) {
  if (text.empty()) return std::nullopt;
  const std::optional<int64_t> expiry = ParseTime(text);
  if (!expiry) Fail(EBADMSG, "{}: invalid expiration {}", origin, Quoted(text));
  return expiry;
}

// Returns the first element `name` below `node`, in any namespace.
pugi::xml_node FindBelow(const pugi::xml_node& node, std::string_view name) {
  return node.find_node([name](const pugi::xml_node& found) {
    std::string_view own = found.name();
    if (const size_t colon = own.find(':'); colon != std::string_view::npos) {
      own.remove_prefix(colon + 1);
    }
    return own == name;
  });
}

std::string FindTextBelow(const pugi::xml_node& node, const char* name) {
  return FindBelow(node, name).child_value();
}

}  // namespace

CredentialsPtr ParseJsonCredentials(const std::string& json, const std::string& origin) {
  std::map<std::string, std::string> texts;
  try {
    texts = ParseStringMembers(json);
  } catch (const Error&) {
    Fail(EBADMSG, "{}: malformed credentials: not a JSON object", origin);
  }
  if (texts["AccessKeyId"].empty() || texts["SecretAccessKey"].empty()) {
    const std::string code = FilterCode(texts["Code"].empty() ? texts["code"] : texts["Code"]);
    Fail(EACCES, "{}: no credentials found{}{}", origin, code.empty() ? "" : ": ", code);
  }
  const std::string& token = texts["Token"].empty() ? texts["SessionToken"] : texts["Token"];
  return MakeCredentials(texts["AccessKeyId"], texts["SecretAccessKey"], token, origin,
                         ParseExpiry(texts["Expiration"], origin));
}

CredentialsPtr ParseXmlCredentials(const std::string& xml, const std::string& origin) {
  pugi::xml_document document;
  document.load_buffer(xml.data(), xml.size());
  const pugi::xml_node credentials = FindBelow(document, "Credentials");
  const std::string key = FindTextBelow(credentials, "AccessKeyId");
  const std::string secret = FindTextBelow(credentials, "SecretAccessKey");
  if (key.empty() || secret.empty()) {
    const std::string code = FilterCode(FindTextBelow(document, "Code"));
    Fail(EACCES, "{}: no credentials found{}{}", origin, code.empty() ? "" : ": ", code);
  }
  return MakeCredentials(key, secret, FindTextBelow(credentials, "SessionToken"), origin,
                         ParseExpiry(FindTextBelow(credentials, "Expiration"), origin));
}

ErrorResponse ParseErrorResponse(const std::string& xml) {
  pugi::xml_document document;
  document.load_buffer(xml.data(), xml.size());
  const pugi::xml_node error = FindBelow(document, "Error");
  return {.code = FilterCode(error.child_value("Code")),
          .message = error.child_value("Message"),
          .region = error.child_value("Region")};
}

std::optional<int64_t> ParseTime(std::string_view text) {
  const std::string terminated(text.substr(0, 40));
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int end = 0;
  if (std::sscanf(terminated.c_str(), "%4d-%2u-%2uT%2d:%2d:%2d%n", &year, &month, &day, &hour,
                  &minute, &second, &end) != 6) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
      second > 60) {
    return std::nullopt;
  }
  std::string_view rest = std::string_view(terminated).substr(static_cast<size_t>(end));
  if (rest.starts_with('.')) {
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789", 1), rest.size()));
  }
  int64_t east = 0;  // Seconds.
  if (rest != "Z" && !rest.empty()) {
    char sign = 0;
    int hours = 0;
    int minutes = 0;
    int length = 0;
    if (std::sscanf(std::string(rest).c_str(), "%c%2d:%2d%n", &sign, &hours, &minutes, &length) !=
            3 ||
        static_cast<size_t>(length) != rest.size() || (sign != '+' && sign != '-') || hours < 0 ||
        minutes < 0) {
      return std::nullopt;
    }
    east = (sign == '-' ? -1 : 1) * (int64_t{hours} * 3600 + int64_t{minutes} * 60);
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return int64_t{days} * 86400 + int64_t{hour} * 3600 + int64_t{minute} * 60 + second - east;
}

namespace {

bool IsRegionError(std::string_view code) {
  return code == "AuthorizationHeaderMalformed" || code == "IllegalLocationConstraintException";
}

bool IsTokenError(std::string_view code) {
  constexpr std::array<std::string_view, 4> kCodes = {"ExpiredToken", "ExpiredTokenException",
                                                      "InvalidToken", "TokenRefreshRequired"};
  return std::ranges::find(kCodes, code) != kCodes.end();
}

// Returns "AccessDenied, 'User is not authorized'". Some servers omit the message, or the code,
// too.
std::string Describe(const http::Response& response, const ErrorResponse& error) {
  if (error.code.empty()) return fmt::format("status {}", response.status);
  if (error.message.empty()) return error.code;
  return fmt::format("{}, {}", error.code, Quoted(error.message));
}

[[noreturn]] void FailMissing(const http::Response& response, const ErrorResponse& error) {
  if (error.code == "NoSuchBucket") Fail(ENOENT, "no such bucket");
  if (response.Find("x-amz-delete-marker") == "true") {
    Fail(ENOENT, "object deleted: append ?versionId= and an older version to read that");
  }
  Fail(ENOENT, "no such object: {}", Describe(response, error));
}

[[noreturn]] void FailRefused(const http::Response& response, const ErrorResponse& error,
                              std::string_view origin) {
  const std::string description = Describe(response, error);
  if (error.code == "InvalidObjectState") {
    Fail(EACCES, "object archived: restore it first: {}", description);
  }
  if (error.code == "RequestTimeTooSkewed") {
    Fail(EACCES, "clock skew between this machine and the server: {}", description);
  }
  if (origin.empty()) {
    Fail(EACCES, "permission denied without credentials: {}", description);
  }
  Fail(EACCES, "permission denied with the credentials of {}: {}", origin, description);
}

}  // namespace

RetryAction RetryActionFor(const http::Response& response, const ErrorResponse& error) {
  const int status = response.status;
  if (http::IsRedirect(status) || IsRegionError(error.code)) return RetryAction::kRegion;
  if (error.code == "RequestTimeTooSkewed") return RetryAction::kClock;
  if (status == 401 || status == 403 || IsTokenError(error.code)) return RetryAction::kRenew;
  return RetryAction::kNone;
}

void FailFor(const http::Response& response, const ErrorResponse& error, std::string_view origin) {
  const int status = response.status;
  if (status == 404 || response.Find("x-amz-delete-marker") == "true") {
    FailMissing(response, error);
  }
  if (status == 407) Fail(EACCES, "{}", http::kProxyNeedsPassword);
  if (status == 401 || status == 403 || IsTokenError(error.code)) {
    FailRefused(response, error, origin);
  }
  if (http::IsRedirect(status) || IsRegionError(error.code)) {
    Fail(EREMOTEIO, "bucket in another region, which the response does not contain: {}",
         Describe(response, error));
  }
  Fail(EREMOTEIO, "server returned status {}{}{}", status, error.code.empty() ? "" : ": ",
       error.code.empty() ? "" : Describe(response, error));
}

}  // namespace ckptfs::s3
