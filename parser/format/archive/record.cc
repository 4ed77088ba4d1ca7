#include "parser/format/archive/record.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace ckptfs {
namespace {

class Relocation {
 public:
  Relocation(const ByteSourcePtr& source, const Record& record, std::string_view path)
      : source_(source), record_(record), path_(path) {}

  // The depth of the recursion is that of the tree, which its format has bounded.
  void Move(Group& group) const {
    if (group.table != nullptr) Move(*group.table);
    for (Member& member : group.members) {
      std::visit(Overloaded{[this](std::unique_ptr<Group>& child) { Move(*child); },
                            [this](Tensor& tensor) { Move(tensor); }, [](Value& /*value*/) {},
                            [this](Table& table) { Move(table); }},
                 member.content);
    }
  }

 private:
  void Move(Tensor& tensor) const {
    Move(tensor.data);
    Rename(tensor.member);
    tensor.is_in_file = tensor.is_in_file && record_.is_in_file;
    tensor.file_offset = tensor.is_in_file ? tensor.file_offset + record_.data.offset : 0;
    if (tensor.sizes == nullptr) return;
    auto sizes = std::make_shared<Tensor>(*tensor.sizes);
    Move(*sizes);
    tensor.sizes = std::move(sizes);
  }

  void Move(Table& table) const {
    Move(table.data);
    Rename(table.member);
  }

  // A tensor that is read without a layer needs no slice either.
  void Move(Extent& data) const {
    if (data.source != source_) return;
    data.source = record_.data.source;
    data.offset += record_.data.offset;
  }

  void Rename(std::string& member) const {
    if (path_.empty()) return;
    member = member.empty() ? std::string(path_) : fmt::format("{}/{}", path_, member);
  }

  const ByteSourcePtr& source_;
  const Record& record_;
  std::string_view path_;
};

}  // namespace

void Relocate(Group& group, const ByteSourcePtr& source, const Record& record,
              std::string_view path) {
  Relocation(source, record, path).Move(group);
}

}  // namespace ckptfs
