// What JSON does not tell of a value of Python: that a list was a tuple, and a text NaN.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// The types of what is inside a value, by where it is: a JSON pointer (RFC 6901). Who writes the
// value enters what he writes, and tells its type.
class PythonTypes {
 public:
  // As long as this lives, what is told is about a part of the value.
  class [[nodiscard]] Inside {
   public:
    Inside(std::string& pointer, std::string_view step);
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { pointer_.resize(length_); }

   private:
    std::string& pointer_;
    const size_t length_;
  };

  // What this keeps is charged to `budget`, which must outlive it.
  explicit PythonTypes(Budget& budget) : budget_(budget) {}

  // Enters the item or member `step`.
  Inside Enter(std::string_view step) { return {pointer_, step}; }

  // The type of what was entered last; empty if JSON tells it. Throws Error(EFBIG).
  void Tell(std::string_view type);

  // Adds the note "python_types", an object, if there is anything to be told.
  void AddTo(Value& value);

 private:
  Budget& budget_;
  std::string pointer_;  // To what is being written.
  std::string types_;    // "pointer":"type", ...
};

}  // namespace ckptfs
