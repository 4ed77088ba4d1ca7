// Annotations that several formats share: of merged checkpoints, of types of Python.

#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// Merges the annotations of several checkpoints. Belongs to one thread.
class MergedAnnotations {
 public:
  // Everything is charged to `budget`, which must outlive this.
  explicit MergedAnnotations(Budget& budget) : budget_(budget) {}

  // Returns the format and the annotations of `checkpoint` as members of a JSON object, without
  // braces. The globals that its pickles name are kept for Finish.
  std::string Add(const Checkpoint& checkpoint);

  // Sets the globals of `merged` to those of all checkpoints.
  void Finish(Checkpoint& merged) const;

 private:
  void Add(const std::vector<Annotation>& annotations, std::string& json);

  Budget& budget_;
  std::map<std::string, bool> globals_;  // Whether each is refused, by name.
};

// The types inside a value that JSON cannot express: that a list was a tuple, and a text NaN. They
// are keyed by JSON pointer (RFC 6901). The writer of the JSON calls Enter for each item or member,
// and then Add with its type.
class PythonTypes {
 public:
  // Restores the pointer at the end of an item or member.
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

  // Everything is charged to `budget`, which must outlive this.
  explicit PythonTypes(Budget& budget) : budget_(budget) {}

  // Enters the item or member `step`.
  Inside Enter(std::string_view step) { return {pointer_, step}; }

  // Records the type of the current item or member, unless it is empty. Throws Error(EFBIG).
  void Add(std::string_view type);

  // Adds the annotation "python_types", an object, if any type was recorded.
  void AddTo(Value& value);

 private:
  Budget& budget_;
  std::string pointer_;  // To the current item or member.
  std::string types_;    // "pointer":"type", ...
};

}  // namespace ckptfs
