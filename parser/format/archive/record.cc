#include "parser/format/archive/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/codec/json_document.h"
#include "parser/format/tensordict/value.h"
#include "parser/io/simple_sources.h"

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

  // A tensor that is read directly needs no slice either.
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

namespace {

constexpr uint64_t kCost = 1024;  // Bytes: a member, and its file in the tree.

Value StringOf(const std::string& text, Budget& budget) {
  constexpr uint64_t kCopies = 3;  // meta.json has it once more, and grows by doubling.
  constexpr uint64_t kMostEscaped = 6;
  budget.Charge(kCopies * kMostEscaped * text.size());
  std::string json = json::String(text);
  budget.Refund(kCopies * (kMostEscaped * text.size() -
                           std::min(kMostEscaped * text.size(), uint64_t{json.size()})));
  return {.json = std::move(json), .python_type = "", .annotations = {}, .collection = {}};
}

}  // namespace

std::optional<std::string> TextIn(const Record& record, Budget& budget) {
  record.Check();
  const uint64_t length = record.data.length;
  if (length > kMostText) return std::nullopt;
  budget.Charge(length);
  std::string text(static_cast<size_t>(length), '\0');
  if (length > 0) {
    record.data.source->ReadAt(record.data.offset, std::as_writable_bytes(std::span(text)));
  }
  if (text.find('\0') != std::string::npos || !utf8::IsValid(text)) {
    budget.Refund(length);
    return std::nullopt;
  }
  return text;
}

Value ValueOfText(const std::string& text, Budget& budget) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || (text[first] != '{' && text[first] != '[')) {
    return StringOf(text, budget);
  }
  try {
    const Extent all = {std::make_shared<MemorySource>(text), 0, text.size()};
    const json::Document document = json::Document::Of(all, budget);
    return tensordict::ValueOf(document.root(), budget);
  } catch (const Error& e) {
    if (e.code() != EBADMSG) throw;
    return StringOf(text, budget);  // YAML may begin so, too.
  }
}

Tensor TensorOfBytes(const Record& record) {
  return {.dtype = Dtype::kUint8,
          .shape = {record.data.length},
          .data = record.data,
          .member = record.member,
          .file_offset = record.data.offset,
          .is_in_file = record.is_in_file};
}

Content ContentOfFile(const Record& record, Budget& budget) {
  budget.Charge(kCost + record.member.size());
  if (const auto text = TextIn(record, budget)) return StringOf(*text, budget);
  return TensorOfBytes(record);
}

}  // namespace ckptfs
