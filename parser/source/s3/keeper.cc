#include "parser/source/s3/keeper.h"

#include <cerrno>
#include <exception>

#include "parser/base/error.h"

namespace ckptfs::s3 {
namespace {

// Seconds. Clocks of two machines differ, and a request may be long on its way.
constexpr int64_t kRenewBefore = 300;
constexpr int64_t kPause = 30;  // Between two tries.

}  // namespace

bool CredentialsKeeper::IsGood(const Credentials& credentials) const {
  return !credentials.expiry || now_() < *credentials.expiry;
}

bool CredentialsKeeper::IsDue(const Credentials& credentials) const {
  return credentials.expiry && now_() >= *credentials.expiry - kRenewBefore &&
         (now_() >= found_at_ + kPause || !IsGood(credentials));
}

void CredentialsKeeper::FindAgain(std::unique_lock<std::mutex>& lock) {
  const bool was_found = current_ != nullptr;
  is_finding_ = true;
  lock.unlock();
  CredentialsPtr found;
  std::exception_ptr failure;
  try {
    found = find_();
    // A place that has had some and has none now is out of order: nobody is whom we were not.
    if (!found && was_found) Fail(EACCES, "there are no credentials any more");
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  is_finding_ = false;
  found_at_ = now_();
  found_again_.notify_all();
  if (failure) {
    if (is_found_ && current_ && IsGood(*current_)) return;
    std::rethrow_exception(failure);
  }
  is_found_ = true;
  current_ = std::move(found);
}

CredentialsPtr CredentialsKeeper::Get() {
  std::unique_lock lock(mutex_);
  while (is_finding_ && !(is_found_ && current_ && IsGood(*current_))) found_again_.wait(lock);
  if (!is_finding_ && (!is_found_ || (current_ && IsDue(*current_)))) FindAgain(lock);
  return current_;
}

bool CredentialsKeeper::Renew(const std::string& access_key) {
  std::unique_lock lock(mutex_);
  while (is_finding_) found_again_.wait(lock);
  if (!current_) return false;
  if (current_->access_key != access_key) return true;  // Another thread was faster.
  if (renewed_at_ && now_() < *renewed_at_ + kPause) return false;
  renewed_at_ = now_();
  const CredentialsPtr refused = current_;
  FindAgain(lock);
  return current_ && !AreSame(*refused, *current_);
}

}  // namespace ckptfs::s3
