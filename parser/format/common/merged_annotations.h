// What several checkpoints tell of themselves, where they become one.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// Collects annotations. Belongs to one thread.
class MergedAnnotations {
 public:
  // What is kept is charged to `budget`, which must outlive this.
  explicit MergedAnnotations(Budget& budget) : budget_(budget) {}

  // Returns the format and the annotations of `checkpoint` as members of a JSON object, without braces.
  // The globals that its pickles name are kept for Finish.
  std::string Add(const Checkpoint& checkpoint);

  // Adds the globals of all to the annotations of `merged`, if there are any.
  void Finish(Checkpoint& merged) const;

 private:
  void Add(const std::vector<Annotation>& annotations, std::string& json);

  Budget& budget_;
  std::map<std::string, bool> globals_;  // Whether each is refused, by name.
};

}  // namespace ckptfs
