#include "parser/source/http/opening.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/io/prefetch.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::http {
namespace {

// Hashes the URL and the version: the query of a URL may be secret, and may identify the object.
std::string IdentityOf(const std::string& name, const std::string& url, const Version& version,
                       const std::string& pin) {
  if (!IsStrongTag(version.tag) && pin.empty()) return {};
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}", name, url, version.tag, pin, version.size);
  std::array<unsigned char, crypto_generichash_BYTES> hash = {};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return name + " " + Hex(std::as_bytes(std::span(hash)));
}

std::string ObjectUrl(const PreparedRequest& prepared) {
  return prepared.object_url.empty() ? prepared.request.url : prepared.object_url;
}

void WarnOfWeakVersion(const std::string& name, const Version& version,
                       const SourceOptions& options) {
  if (!version.tag.empty() || version.size == 0 || !options.warn) return;
  options.warn(fmt::format(
      "{}: {}", name,
      version.last_modified.empty()
          ? "response without ETag and Last-Modified: changes of the same length are not detected"
          : "response without ETag: changes of the same length within one second are not "
            "detected"));
}

}  // namespace

Opened OpenListed(const std::string& name, Access& access, Listed listed) {
  Opened opened;
  opened.version = std::move(listed.version);
  opened.identity = listed.identity.empty()
                        ? IdentityOf(name, ObjectUrl(access.Prepare({})), opened.version, "")
                        : std::move(listed.identity);
  opened.sha256 = listed.sha256;
  return opened;
}

Opened Open(const std::string& name, Client& client, Access& access, const SourceOptions& options) {
  constexpr int kRangeNotSatisfiable = 416;
  RetryPolicy retry(options, RetryPolicy::Phase::kOpening, name, "");
  Opened opened;
  std::string url;  // Before redirects, whose targets may change.
  std::string pin;
  bool asks_for_part = true;
  const std::stop_token never;
  const auto attempt = [&] {
    PreparedRequest prepared = access.Prepare(
        asks_for_part ? std::vector{RangeHeader({.offset = 0, .length = kPrefetchedHead})}
                      : std::vector<std::string>());
    prepared.request.limits = retry.Limits(options.download ? UINT64_MAX : kPrefetchedHead);
    prepared.request.length = kPrefetchedHead;
    prepared.request.connections = kUsualConnections;
    if (url.empty()) url = ObjectUrl(prepared);
    auto first = std::make_unique<FirstBytes>(client, prepared.request, options, retry);
    const Response response = first->Await();
    if (first->is_begun()) {
      opened.version = ParseVersion(response, first->total());
      opened.download = first->TakeDownload();
      if (!opened.download) opened.first = std::move(first);
      opened.round_trip = response.round_trip;
      opened.latency = response.latency;
      pin = access.Pin(response);
      access.Succeeded();
      return true;
    }
    if (response.status == kRangeNotSatisfiable && asks_for_part) {
      const auto range = ParseContentRange(response.Find("content-range"));
      if (range && range->total == 0) {
        opened.version = ParseVersion(response, 0);
        return true;
      }
      asks_for_part = false;  // Some servers omit the length: fetch the short object whole.
      return false;
    }
    ThrowIfTransient(response);
    if (access.Recover(prepared, response)) return false;
    Fail(EREMOTEIO, "server returned status {}", response.status);
  };
  retry.Run(attempt, never);
  WarnOfWeakVersion(name, opened.version, options);
  opened.identity = IdentityOf(name, url, opened.version, pin);
  return opened;
}

}  // namespace ckptfs::http
