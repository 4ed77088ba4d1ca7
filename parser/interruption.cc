#include "parser/interruption.h"

#include <cassert>
#include <cerrno>

#include "parser/error.h"

namespace ckptfs {
namespace {

thread_local const Interruption::IsGivenUp* asked = nullptr;
thread_local const Interruption::IsTurnOver* asked_for_turn = nullptr;

}  // namespace

Interruption::Interruption(const IsGivenUp& is_given_up, const IsTurnOver* is_turn_over) {
  assert(asked == nullptr);
  asked = &is_given_up;
  asked_for_turn = is_turn_over;
}

Interruption::~Interruption() {
  asked = nullptr;
  asked_for_turn = nullptr;
}

bool Interruption::IsGivenUpHere() { return asked != nullptr && (*asked)(); }

void Interruption::Check() {
  if (IsGivenUpHere()) Fail(EINTR, "interrupted");
}

void Interruption::CheckTurn(bool is_idle) {
  Check();
  if (asked_for_turn != nullptr && (*asked_for_turn)(is_idle)) throw TurnOver();
}

}  // namespace ckptfs
