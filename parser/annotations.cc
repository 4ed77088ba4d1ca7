#include "parser/annotations.h"

#include <memory>
#include <variant>

#include "parser/base/overloaded.h"

namespace ckptfs {

std::vector<Annotation>& AnnotationsOf(Content& content) {
  return std::visit(
      Overloaded{[](std::unique_ptr<Group>& group) -> std::vector<Annotation>& {
                   return group->annotations;
                 },
                 [](Tensor& tensor) -> std::vector<Annotation>& { return tensor.annotations; },
                 [](Value& value) -> std::vector<Annotation>& { return value.annotations; },
                 [](Table& table) -> std::vector<Annotation>& { return table.annotations; }},
      content);
}

}  // namespace ckptfs
