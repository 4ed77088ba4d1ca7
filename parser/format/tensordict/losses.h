// What cannot be had: a warning, and what is shown in its place.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"

namespace ckptfs::tensordict {

// What messages call the member `key` of the collection that they call `path`, which is empty or
// ends with a dot. Long ones are cut.
std::string PathOf(std::string_view path, std::string_view key);

// What stands for a value that cannot be had.
Value Lost(std::string_view class_name, std::string_view why);

// Of one checkpoint. Belongs to one thread; `budget`, to which all of it is charged, and
// `checkpoint` must outlive this. `path` is what messages call a member.
class Losses {
 public:
  Losses(Budget& budget, Checkpoint& checkpoint) : budget_(budget), checkpoint_(checkpoint) {}

  // A tensor that can be read.
  Content Keep(Tensor tensor);

  // One that cannot; `tensor` is what is known of it. Throws `error` if it is transient.
  Content LoseTensor(std::string_view path, Tensor tensor, const Error& error);

  // A collection that is lost as a whole. Likewise.
  Content LoseCollection(std::string_view path, const Error& error);

  // Throws Error(EBADMSG) if there are tensors with elements, and not one of them can be read.
  void Finish() const;

 private:
  Budget& budget_;
  Checkpoint& checkpoint_;
  size_t readable_ = 0;         // Tensors with bytes.
  std::optional<Error> first_;  // What is wrong with the first tensor that is lost.
};

}  // namespace ckptfs::tensordict
