#include "parser/format/torch/storage.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <span>
#include <system_error>
#include <utility>

#include "parser/error.h"

namespace ckptfs::torch {
namespace {

using pickle::Kind;
using pickle::Value;

// Keys and locations are bytes in files that have passed through Python 2.
bool IsText(const Value& value) { return value.kind == Kind::kText || value.kind == Kind::kBytes; }

struct Id {
  StorageClass type;
  std::string key;
  std::string location;
  uint64_t size = 0;  // In bytes.
};

uint64_t SizeOf(const StorageClass& type, int64_t elements) {
  uint64_t size = 0;
  if (elements < 0 ||
      __builtin_mul_overflow(static_cast<uint64_t>(elements), ItemSize(type.dtype), &size)) {
    Fail(EBADMSG, "its storage has {} elements", elements);
  }
  return size;
}

// Takes what precedes `end` off the front of `text`, and `end` with it.
std::string_view TakeUntil(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  if (at == std::string_view::npos) {
    Fail(EBADMSG, "its storage has a persistent id without {}", Quoted(end));
  }
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return taken;
}

// Protocol 0 has the id as Python prints the tuple, which is why PyTorch itself cannot read it:
// ('storage', <class 'torch.FloatStorage'>, '0', 'cpu', 6)
Id IdOfText(std::string_view text) {
  TakeUntil(text, "('storage', <class '");
  const std::string_view path = TakeUntil(text, "'>, '");
  const size_t dot = std::min(path.rfind('.'), path.size());
  const auto type =
      StorageClassNamed(path.substr(0, dot), path.substr(std::min(dot + 1, path.size())));
  if (!type) Fail(EBADMSG, "its storage is of a class that we do not know: {}", Quoted(path));
  const std::string_view key = TakeUntil(text, "', '");
  const std::string_view location = TakeUntil(text, "', ");
  const std::string_view digits = TakeUntil(text, ")");
  int64_t elements = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), elements);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
    Fail(EBADMSG, "its storage has {} elements", Quoted(digits));
  }
  return {*type, std::string(key), std::string(location), SizeOf(*type, elements)};
}

Id IdOf(const Value& persistent) {
  const Value& id = pickle::ItemsOf(persistent)[0];
  if (id.kind == Kind::kText) return IdOfText(id.text());
  if (id.kind != Kind::kTuple || pickle::ItemsOf(id).size() != 5) {
    Fail(EBADMSG, "its storage has a persistent id that is no tuple of 5");
  }
  const std::span<const Value> parts = pickle::ItemsOf(id);
  if (!IsText(parts[0]) || parts[0].text() != "storage") {
    Fail(EBADMSG, "its storage has a persistent id that does not begin with 'storage'");
  }
  const auto type = StorageClassOf(parts[1]);
  if (!type) Fail(EBADMSG, "its storage is of a class that we do not know");
  const bool is_number = parts[2].kind == Kind::kInt;
  if ((!is_number && !IsText(parts[2])) || !IsText(parts[3])) {
    Fail(EBADMSG, "its storage has a persistent id without a key or a location");
  }
  if (parts[4].kind != Kind::kInt) {
    Fail(EBADMSG, "its storage has a persistent id without a number of elements");
  }
  return {*type, is_number ? std::to_string(parts[2].integer) : std::string(parts[2].text()),
          std::string(parts[3].text()), SizeOf(*type, parts[4].integer)};
}

// Bytes may be seen as bytes under both classes that count bytes.
bool CountsBytes(const StorageClass& type) {
  return type.is_untyped || type.dtype == Dtype::kUint8;
}

bool IsSame(const StorageClass& a, const StorageClass& b) {
  return a.dtype == b.dtype || (CountsBytes(a) && CountsBytes(b));
}

}  // namespace

const Storage& Storages::Get(const Value& persistent) {
  Id id = IdOf(persistent);
  const auto [found, is_new] = known_.try_emplace(id.key);
  Storage& storage = found->second;
  if (is_new) {
    storage = {.record = find_(id.key),
               .type = id.type,
               .size = id.size,
               .location = std::move(id.location)};
    Record& record = storage.record;
    if (record.error.empty() && record.data.length < id.size) {
      record.error = fmt::format("{} has {} bytes, but its storage needs {}", record.member,
                                 record.data.length, id.size);
    }
  } else if (!IsSame(storage.type, id.type) || storage.size != id.size) {
    Fail(EBADMSG, "its storage {} is said to be {} bytes of {} here, but was {} bytes of {} before",
         Quoted(id.key), id.size, Name(id.type.dtype), storage.size, Name(storage.type.dtype));
  }
  return storage;
}

}  // namespace ckptfs::torch
