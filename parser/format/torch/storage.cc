#include "parser/format/torch/storage.h"

#include <cerrno>
#include <span>
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
  std::string_view key;
  std::string_view location;
  uint64_t size = 0;  // In bytes.
};

Id IdOf(const Value& persistent) {
  const Value& id = pickle::ItemsOf(persistent)[0];
  if (id.kind != Kind::kTuple || pickle::ItemsOf(id).size() != 5) {
    Fail(EBADMSG, "its storage has a persistent id that is no tuple of 5");
  }
  const std::span<const Value> parts = pickle::ItemsOf(id);
  if (!IsText(parts[0]) || parts[0].text() != "storage") {
    Fail(EBADMSG, "its storage has a persistent id that does not begin with 'storage'");
  }
  const auto type = StorageClassOf(parts[1]);
  if (!type) Fail(EBADMSG, "its storage is of a class that we do not know");
  const bool has_key =
      (IsText(parts[2]) && !parts[2].text().empty()) || parts[2].kind == Kind::kInt;
  if (!has_key || !IsText(parts[3])) {
    Fail(EBADMSG, "its storage has a persistent id without a key or a location");
  }
  if (parts[4].kind != Kind::kInt || parts[4].integer < 0) {
    Fail(EBADMSG, "its storage has a persistent id without a number of elements");
  }
  uint64_t size = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(parts[4].integer), ItemSize(type->dtype),
                             &size)) {
    Fail(EOVERFLOW, "its storage has {} elements", parts[4].integer);
  }
  return {*type, IsText(parts[2]) ? parts[2].text() : "", parts[3].text(), size};
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
  const Id id = IdOf(persistent);
  std::string key(id.key);
  if (key.empty()) key = std::to_string(pickle::ItemsOf(pickle::ItemsOf(persistent)[0])[2].integer);
  const auto [found, is_new] = known_.try_emplace(key);
  Storage& storage = found->second;
  if (is_new) {
    storage = {.record = find_(key),
               .type = id.type,
               .size = id.size,
               .location = std::string(id.location)};
    Record& record = storage.record;
    if (record.error.empty() && record.data.length < id.size) {
      record.error = fmt::format("{} has {} bytes, but its storage needs {}", record.member,
                                 record.data.length, id.size);
    }
  } else if (!IsSame(storage.type, id.type) || storage.size != id.size) {
    Fail(EBADMSG, "its storage {} is said to be {} bytes of {} here, but was {} bytes of {} before",
         Quoted(key), id.size, Name(id.type.dtype), storage.size, Name(storage.type.dtype));
  }
  return storage;
}

}  // namespace ckptfs::torch
