#include "parser/format/torch/bytes.h"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/metering.h"
#include "parser/base/utf8.h"
#include "parser/format/torch/context.h"
#include "parser/format/torch/vocabulary.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::Object;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

}  // namespace

bool IsText(const Value& value) { return value.kind == Kind::kText || value.kind == Kind::kBytes; }

std::optional<std::string> BytesOfLatin1(std::string_view text) {
  CountWork(text.size() / 4);
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const utf8::Character next = utf8::Decode(text);
    if (!next.is_valid || next.code > 0xFF) return std::nullopt;
    bytes += static_cast<char>(next.code);
    text.remove_prefix(next.length);
  }
  return bytes;
}

std::optional<std::string_view> BytesOf(const Value& value, std::string& decoded, Budget& budget) {
  const auto is_bytes = [](const Value& v) {
    return v.kind == Kind::kBytes || v.kind == Kind::kByteArray;
  };
  if (is_bytes(value) || value.kind == Kind::kText) return value.text();  // Python 2's str.
  if (!pickle::IsObject(value)) return std::nullopt;
  const Object* object = &ObjectOf(value);
  Values arguments = ItemsOf(object->arguments);
  Known known = KnownCallable(object->target);
  if (known == Known::kBytes || known == Known::kByteArray) {
    if (arguments.empty()) return "";
    if (is_bytes(arguments[0])) return arguments[0].text();
    if (pickle::IsObject(arguments[0])) {  // bytearray(_codecs.encode(...)): protocol 2 again.
      object = &ObjectOf(arguments[0]);
      known = KnownCallable(object->target);
      arguments = ItemsOf(object->arguments);
    } else {
      known = Known::kEncode;  // bytearray(text, "latin-1"): as Python 2 and old protocols have it.
    }
  }
  if (known == Known::kBytes && arguments.empty()) return "";
  if (known != Known::kEncode || arguments.empty() || arguments[0].kind != Kind::kText) {
    return std::nullopt;
  }
  budget.Charge(arguments[0].length);
  auto bytes = BytesOfLatin1(arguments[0].text());
  if (!bytes) return std::nullopt;
  decoded = std::move(*bytes);
  return decoded;
}

Record RecordOfBytes(const Value& value, Context& context) {
  Record record{
      .data = {}, .member = context.pickle_record.member, .is_in_file = false, .error = ""};
  std::string decoded;
  const auto bytes = BytesOf(value, decoded, context.budget);
  if (!bytes) Fail(EBADMSG, "its bytes are missing");
  const char* begin = reinterpret_cast<const char*>(context.pickle.data());
  const bool is_in_pickle =
      !bytes->empty() && bytes->data() >= begin && bytes->data() < begin + context.pickle.size();
  if (is_in_pickle && context.pickle_record.is_in_file) {
    const Extent& pickle = context.pickle_record.data;
    record.is_in_file = true;
    record.data = {pickle.source, pickle.offset + static_cast<uint64_t>(bytes->data() - begin),
                   bytes->size()};
    return record;
  }
  const uint64_t length = bytes->size();
  if (bytes->data() != decoded.data()) {
    context.budget.Charge(length);
    decoded = *bytes;
  }
  record.data = {std::make_shared<MemorySource>(std::move(decoded)), 0, length};
  return record;
}

}  // namespace ckptfs::torch
