#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/codec/ini.h"
#include "parser/io/folder.h"
#include "parser/source/az/container.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/response.h"
#include "tests/fuzz/require.h"

namespace ckptfs::s3 {
namespace {

// The oracle: all settings are parts of the file, and no line is longer than in the file.
void CheckSettings(const std::string& text) {
  Try([&] {
    size_t size = 0;
    for (const auto& [name, section] : ini::Read(text)) {
      size += name.size();
      for (const auto& [setting, value] : section) {
        size += setting.size() + value.size();
        for (const auto& [below, part] : ini::ReadValue(value)) {
          Require(below.size() + part.size() < value.size());
        }
      }
    }
    Require(size <= text.size());
  });
  Try([&] {
    size_t size = 0;
    for (const std::string& word : ini::SplitWords(text)) size += word.size();
    Require(size <= text.size());
  });
}

// Credentials contain only characters that are valid in headers.
void CheckCredentials(const CredentialsPtr& found) {
  const auto is_for_header = [](char c) { return c > ' ' && c < 0x7f; };
  Require(!found->access_key.empty() && std::ranges::all_of(found->access_key, is_for_header));
  Require(std::ranges::all_of(found->session_token, is_for_header));
}

// A listing has plain, sorted and unique names, even if a page is repeated.
void CheckListing(const std::string& xml, std::string_view prefix) {
  const auto check = [](const std::vector<std::string>& names) {
    Require(std::ranges::all_of(names, IsPlainName));
    Require(std::ranges::adjacent_find(names, std::greater_equal<>()) == names.end());
  };
  int asked = 0;
  const Listing listing = List(prefix, [&](const Query&) {
    // Ends the pagination.
    return ++asked <= 2 ? xml : "<ListBucketResult/>";
  });
  check(listing.files);
  check(listing.folders);
}

void CheckPage(const Page& page) { Require(page.keys.size() == page.versions.size()); }

void CheckAnswers(const std::string& text) {
  Try([&] { CheckCredentials(ParseJsonCredentials(text, "it")); });
  Try([&] { CheckCredentials(ParseXmlCredentials(text, "it")); });
  Try([&] { CheckListing(text, ""); });
  Try([&] { CheckListing(text, "d/"); });
  Try([&] { CheckPage(az::ParsePage(text)); });
  const ErrorResponse error = ParseErrorResponse(text);
  Require(error.code.size() <= 64);
  ParseTime(text);
}

void CheckNames(const std::string& text) {
  Require(PercentDecode(PercentEncode(text)) == text);
  Require(PercentDecode(PercentEncode(text, "/")) == text);
  Try([&] {
    const ObjectId id = ParseUri(ParseLocation(text.starts_with("s3://") ? text : "s3://" + text));
    Require(!id.bucket.empty() && id.bucket.find_first_of("/@:?#\\") == std::string::npos);
  });
  Try([&] {
    const Endpoint endpoint = ParseEndpoint(text);
    Require(endpoint.host.find_first_of("/@?#\\ ") == std::string::npos);
  });
}

}  // namespace
}  // namespace ckptfs::s3

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ckptfs::s3::CheckSettings(text);
  ckptfs::s3::CheckAnswers(text);
  ckptfs::s3::CheckNames(text);
  return 0;
}
