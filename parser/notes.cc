#include "parser/notes.h"

#include <memory>
#include <variant>

#include "parser/base/overloaded.h"

namespace ckptfs {

std::vector<Note>& NotesOf(Content& content) {
  return std::visit(
      Overloaded{[](std::unique_ptr<Group>& group) -> std::vector<Note>& { return group->notes; },
                 [](Tensor& tensor) -> std::vector<Note>& { return tensor.notes; },
                 [](Value& value) -> std::vector<Note>& { return value.notes; },
                 [](Table& table) -> std::vector<Note>& { return table.notes; }},
      content);
}

}  // namespace ckptfs
