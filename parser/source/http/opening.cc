// One request for the first bytes tells the length of the whole, its version, and whether the
// server can serve parts. HEAD would tell less, and is answered wrongly more often.

#include "parser/source/http/opening.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/source/http/attempts.h"
#include "parser/source/http/fields.h"

namespace ckptfs::http {
namespace {

constexpr uint64_t kHead = 64 << 10;  // Bytes.

// Takes the first bytes, or all if there are no more. If the server sends all though there are
// more, spools them if the user wants that.
class FirstBytes final : public Receiver {
 public:
  // All of these must outlive this.
  FirstBytes(const SourceOptions& options, Attempts& attempts)
      : options_(options), attempts_(attempts) {}

  bool Begin(const Response& response) override {
    if (response.status == 200) {
      BeginAll(response);
    } else if (response.status == 206) {
      BeginPart(response);
    }
    return is_begun_;
  }

  void Take(std::span<const std::byte> bytes) override {
    if (expected_ && bytes.size() > *expected_ - received_) {
      throw Fault(EREMOTEIO, fmt::format("the server sends more than {} bytes", *expected_));
    }
    received_ += bytes.size();
    if (!spool_ && received_ > kHead) StartSpool();
    if (spool_) {
      spool_->Append(bytes);
      if (options_.progress) options_.progress(received_, expected_.value_or(0));
    }
    const size_t rest = kHead - head_.size();
    const auto first = bytes.first(std::min(rest, bytes.size()));
    head_.insert(head_.end(), first.begin(), first.end());
    attempts_.Received(received_);
  }

  // Whether the body is one of the object; then it has come.
  bool is_begun() const { return is_begun_; }

  // Moves what has come into `opened`. Throws Fault if something is missing.
  void End(const Response& response, Opened& opened) {
    if (expected_ && received_ != *expected_) {
      throw Fault(EREMOTEIO,
                  fmt::format("the server sends {} bytes instead of {}", received_, *expected_));
    }
    opened.version = VersionOf(response, total_.value_or(received_));
    opened.head = std::move(head_);
    opened.all = std::move(spool_);
  }

 private:
  void BeginPart(const Response& response) {
    RequireIdentity(response);
    const std::string_view told = response.Find("content-range");
    const auto part = ParseContentRange(told);
    if (!part || part->offset != 0 || part->length != std::min(kHead, part->total)) {
      throw Fault(EREMOTEIO, fmt::format("the server sends {} instead of the first bytes",
                                         told.empty() ? "no range" : Quoted(told)));
    }
    const std::string_view length = response.Find("content-length");
    if (!length.empty() && ParseLength(length) != part->length) {
      throw Fault(EREMOTEIO, fmt::format("the server announces {} bytes instead of {}",
                                         Quoted(length), part->length));
    }
    expected_ = part->length;
    total_ = part->total;
    is_begun_ = true;
  }

  void BeginAll(const Response& response) {
    RequireIdentity(response);
    const std::string_view length = response.Find("content-length");
    expected_ = ParseLength(length);
    if (!expected_ && response.Find("transfer-encoding").empty()) {
      Fail(ENOTSUP, "the server does not say how long the file is");
    }
    if (expected_ && *expected_ > kHead) StartSpool();
    is_begun_ = true;
  }

  // An encoding is there to stay: it is no fault that passes.
  static void RequireIdentity(const Response& response) {
    try {
      RequireUncoded(response);
    } catch (const Fault& fault) {
      Fail(ENOTSUP, "{}, so that no part of the file can be had: name the file as it is",
           fault.what());
    }
  }

  void StartSpool() {
    if (!options_.download) {
      Fail(ENOTSUP, "the server cannot serve parts of a file: -o download fetches all of it first");
    }
    spool_ = std::make_unique<Spool>(expected_);
    spool_->Append(head_);
  }

  const SourceOptions& options_;
  Attempts& attempts_;
  bool is_begun_ = false;
  std::optional<uint64_t> expected_;  // Bytes of this body.
  std::optional<uint64_t> total_;     // Bytes of the object, if they are more.
  uint64_t received_ = 0;
  std::vector<std::byte> head_;
  std::unique_ptr<Spool> spool_;
};

// Where an object is, and its version: a hash, because the query of a URL may be secret, and may be
// what names the object.
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

void TellWeakness(const std::string& name, const Version& version, const SourceOptions& options) {
  if (!version.tag.empty() || version.size == 0 || !options.warn) return;
  options.warn(fmt::format(
      "{}: {}", name,
      version.last_modified.empty()
          ? "the server tells no version of the file: changes that keep its length go unnoticed"
          : "the server sends no ETag: changes within one second that keep the length go "
            "unnoticed"));
}

}  // namespace

Opened Open(const std::string& name, Client& client, Access& access, const SourceOptions& options) {
  constexpr int kRangeNotSatisfiable = 416;
  Attempts attempts(options, Attempts::Phase::kOpening, name, "");
  Opened opened;
  std::string url;  // That leads to the object; others it may lead to are not for ever.
  std::string pin;
  bool asks_for_part = true;
  const std::stop_token never;
  const auto attempt = [&] {
    Request request =
        access.Prepare(asks_for_part ? std::vector{RangeHeader({.offset = 0, .length = kHead})}
                                     : std::vector<std::string>());
    attempts.Limit(request, options.download ? UINT64_MAX : kHead);
    if (url.empty()) url = request.url;
    FirstBytes first(options, attempts);
    const Response response = client.Perform(request, &first, never);
    if (first.is_begun()) {
      first.End(response, opened);
      pin = access.Pin(response);
      access.Succeeded();
      return true;
    }
    if (response.status == kRangeNotSatisfiable && asks_for_part) {
      const auto range = ParseContentRange(response.Find("content-range"));
      if (range && range->total == 0) {
        opened.version = VersionOf(response, 0);
        return true;
      }
      asks_for_part = false;  // Not all servers say how little there is.
      return false;
    }
    RequireNoFault(response);
    if (access.Recover(request, response)) return false;
    Fail(EREMOTEIO, "the server answers with status {}", response.status);
  };
  attempts.Run(attempt, never);
  TellWeakness(name, opened.version, options);
  opened.identity = IdentityOf(name, url, opened.version, pin);
  return opened;
}

}  // namespace ckptfs::http
