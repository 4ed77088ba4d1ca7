#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/source/http/client.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/url.h"
#include "parser/source/http/web_access.h"
#include "parser/source/retry_policy.h"
#include "tests/fuzz/require.h"

namespace ckptfs::http {
namespace {

// The headers of a response, one in a line.
Response AnswerOf(std::string_view text) {
  Response response;
  response.status = 206;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t colon = std::min(line.find(':'), line.size());
    response.headers.emplace_back(line.substr(0, colon),
                                  line.substr(std::min(colon + 1, line.size())));
  }
  return response;
}

// The oracle: numbers in an accepted header do not overflow, and the range is the requested one.
void CheckFields(std::string_view text) {
  if (const auto range = ParseContentRange(text)) {
    Require(range->total <= std::numeric_limits<int64_t>::max());
    Require(range->offset <= range->total && range->length <= range->total - range->offset);
  }
  if (const auto wait = ParseRetryAfter(text, 784111777)) {
    Require(wait->count() >= 0 && wait->count() <= 86'400);
  }
  Require(!IsStrongTag(text) || text.find('"', 1) == text.size() - 1);
}

void CheckAnswer(const Response& response) {
  const Version version{.size = 100, .tag = "\"v1\"", .last_modified = ""};
  try {
    ValidateVersion(response, version);
    ValidatePart(response, {.offset = 10, .length = 20}, version);
  } catch (const Error&) {
    return;
  }
  Require(response.Find("etag") == version.tag);
  Require(response.Find("content-range") == "bytes 10-29/100");
}

// A URL is rejected, or has a host; its query is never shown.
void CheckUrl(std::string_view text) {
  try {
    const Url url = ParseUrl(std::string(text));
    Require(!url.host.empty() && url.text.starts_with(url.scheme + "://"));
    Require(WithoutQuery(url).find_first_of("?#") == std::string::npos);
    const Url again = ParseUrl(url.text);
    Require(!again.has_user && again.Origin() == url.Origin());
  } catch (const Error&) {
    return;
  }
}

void Check(std::string_view text) {
  CheckFields(text);
  CheckAnswer(AnswerOf(text));
  CheckUrl(text);
  if (const auto login = FindLogin(text, "host")) {
    Require(login->user.size() + login->password.size() <= text.size());
  }
  Require(PercentDecode(PercentEncode(text)) == text);
}

}  // namespace
}  // namespace ckptfs::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptfs::http::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
