#include "parser/source/s3/credentials.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <span>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::s3 {
namespace {

// All credentials but the secret are part of a header of each request.
bool IsValidInHeader(std::string_view text) {
  constexpr size_t kLongest = size_t{16} << 10U;  // Bytes; tokens of AWS have up to 4 KiB.
  return text.size() <= kLongest &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

CredentialsPtr MakeCredentials(std::string access_key, std::string_view secret_key,
                               std::string session_token, std::string origin,
                               std::optional<int64_t> expiry) {
  constexpr std::string_view kVersion = "AWS4";
  if (access_key.empty() || secret_key.empty() || !IsValidInHeader(access_key) ||
      !IsValidInHeader(secret_key) || !IsValidInHeader(session_token)) {
    Fail(EACCES, "invalid credentials of {}: empty, or with characters that no key contains",
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

namespace {

// Seconds. Clocks of two machines differ, and a request takes time.
constexpr int64_t kRenewBefore = 300;
constexpr int64_t kPause = 30;  // Between two renewals.

}  // namespace

bool CredentialsCache::IsValid(const Credentials& credentials) const {
  return !credentials.expiry || now_() < *credentials.expiry;
}

bool CredentialsCache::IsDue(const Credentials& credentials) const {
  return credentials.expiry && now_() >= *credentials.expiry - kRenewBefore &&
         (now_() >= found_at_ + kPause || !IsValid(credentials));
}

void CredentialsCache::FindAgain() {
  const bool was_found = current_ != nullptr;
  is_finding_ = true;
  mutex_.unlock();
  CredentialsPtr found;
  std::exception_ptr failure;
  try {
    found = find_();
    // A provider that had credentials and has none now has failed: do not become anonymous.
    if (!found && was_found) Fail(EACCES, "credentials no longer found");
  } catch (...) {
    failure = std::current_exception();
  }
  mutex_.lock();
  is_finding_ = false;
  found_at_ = now_();
  found_again_.notify_all();
  if (failure) {
    if (is_found_ && current_ && IsValid(*current_)) return;
    std::rethrow_exception(failure);
  }
  is_found_ = true;
  current_ = std::move(found);
}

CredentialsPtr CredentialsCache::Get() {
  MutexLock lock(mutex_);
  while (is_finding_ && !(is_found_ && current_ && IsValid(*current_))) found_again_.wait(lock);
  if (!is_finding_ && (!is_found_ || (current_ && IsDue(*current_)))) FindAgain();
  return current_;
}

bool CredentialsCache::Renew(const std::string& access_key) {
  MutexLock lock(mutex_);
  while (is_finding_) found_again_.wait(lock);
  if (!current_) return false;
  if (current_->access_key != access_key) return true;  // Another thread has renewed them.
  if (renewed_at_ && now_() < *renewed_at_ + kPause) return false;
  renewed_at_ = now_();
  const CredentialsPtr refused = current_;
  FindAgain();
  return current_ && !AreSame(*refused, *current_);
}

}  // namespace ckptfs::s3
