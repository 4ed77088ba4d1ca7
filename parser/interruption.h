// Whether the one who asked for bytes still waits for them.

#pragma once

#include <functional>

namespace ckptfs {

// As long as it lives, whoever waits in this thread asks `is_given_up` now and then, and stops
// waiting with Error(EINTR) once it says yes. Does not nest.
class Interruption {
 public:
  using IsGivenUp = std::function<bool()>;

  // `is_given_up` must outlive this, and not throw.
  explicit Interruption(const IsGivenUp& is_given_up);
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  // Whether the one who asked this thread has given up; no, if there is none.
  static bool IsGivenUpHere();
};

}  // namespace ckptfs
