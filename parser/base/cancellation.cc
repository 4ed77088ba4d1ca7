#include "parser/base/cancellation.h"

#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

thread_local const Cancellation* innermost = nullptr;

}  // namespace

Cancellation::Cancellation(const IsCancelled& is_cancelled, const IsPreempted* is_preempted)
    : is_cancelled_(is_cancelled), is_preempted_(is_preempted), outer_(innermost) {
  innermost = this;
}

Cancellation::~Cancellation() { innermost = outer_; }

bool Cancellation::IsRequested() {
  for (const Cancellation* i = innermost; i != nullptr; i = i->outer_) {
    if (i->is_cancelled_()) return true;
  }
  return false;
}

void Cancellation::Check() {
  if (IsRequested()) Fail(EINTR, "interrupted");
}

void Cancellation::CheckPreempted(bool is_idle) {
  Check();
  for (const Cancellation* i = innermost; i != nullptr; i = i->outer_) {
    if (i->is_preempted_ == nullptr) continue;
    if ((*i->is_preempted_)(is_idle)) throw Preempted();
    return;
  }
}

}  // namespace ckptfs
