#include "parser/format/archive/plain_file.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/codec/json_document.h"
#include "parser/format/tensordict/value.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {
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

Content ContentOfFile(const Record& record, Budget& budget) {
  budget.Charge(kCost + record.member.size());
  if (const auto text = TextIn(record, budget)) return StringOf(*text, budget);
  Tensor tensor{.dtype = Dtype::kUint8,
                .shape = {record.data.length},
                .data = record.data,
                .member = record.member,
                .file_offset = record.data.offset,
                .is_in_file = record.is_in_file};
  return tensor;
}

}  // namespace ckptfs
