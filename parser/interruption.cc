#include "parser/interruption.h"

#include <cassert>

namespace ckptfs {
namespace {

thread_local const Interruption::IsGivenUp* asked = nullptr;

}  // namespace

Interruption::Interruption(const IsGivenUp& is_given_up) {
  assert(asked == nullptr);
  asked = &is_given_up;
}

Interruption::~Interruption() { asked = nullptr; }

bool Interruption::IsGivenUpHere() { return asked != nullptr && (*asked)(); }

}  // namespace ckptfs
