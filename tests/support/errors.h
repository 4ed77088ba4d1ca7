// Expectations about errors.

#pragma once

#include <gmock/gmock.h>

#include <string>

#include "parser/base/error.h"

namespace ckptfs {

// Matches a call that throws an Error with this code and message.
inline auto Fails(int code, const std::string& message) {
  return testing::Throws<Error>(
      testing::AllOf(testing::Property(&Error::code, code),
                     testing::Property(&Error::what, testing::StrEq(message))));
}

// Returns the code of the Error that `f` throws; 0 if it throws none.
template <typename F>
int CodeOf(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return 0;
}

}  // namespace ckptfs
