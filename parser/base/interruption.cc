#include "parser/base/interruption.h"

#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

thread_local const Interruption* innermost = nullptr;

}  // namespace

Interruption::Interruption(const IsGivenUp& is_given_up, const IsTurnOver* is_turn_over)
    : is_given_up_(is_given_up), is_turn_over_(is_turn_over), outer_(innermost) {
  innermost = this;
}

Interruption::~Interruption() { innermost = outer_; }

bool Interruption::IsGivenUpHere() {
  for (const Interruption* i = innermost; i != nullptr; i = i->outer_) {
    if (i->is_given_up_()) return true;
  }
  return false;
}

void Interruption::Check() {
  if (IsGivenUpHere()) Fail(EINTR, "interrupted");
}

void Interruption::CheckTurn(bool is_idle) {
  Check();
  for (const Interruption* i = innermost; i != nullptr; i = i->outer_) {
    if (i->is_turn_over_ != nullptr && (*i->is_turn_over_)(is_idle)) throw TurnOver();
  }
}

}  // namespace ckptfs
