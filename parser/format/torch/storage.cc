#include "parser/format/torch/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/reader.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {
namespace {

constexpr std::string_view kEnding = ".tensors";

}  // namespace

ByteSourcePtr Sidecar::OpenFile() {
  if (options_.sidecar) {
    name_ = options_.sidecar->name();
    if (options_.budget != nullptr) {
      options_.budget->AddFile(StoredSize(*options_.sidecar), options_.sidecar->is_remote());
    }
    return options_.sidecar;
  }
  name_ = source_.file_name + std::string(kEnding);
  if (!source_.folder) {
    Fail(ENOENT, "{}: file not found beside the checkpoint (-o sidecar= names one)", name_);
  }
  try {
    return source_.folder->Open(name_);
  } catch (const Error& e) {
    if (e.code() != ENOENT) throw WithContext(name_, e);
    Fail(ENOENT, "{}: no such file (-o sidecar= names another one)", name_);
  }
}

void Sidecar::Open() {
  if (std::exchange(is_open_, true)) return;
  try {
    // It has no sidecar of its own.
    Checkpoint checkpoint = ReadCheckpoint(OpenFile(), name_,
                                           {.ask_secret = options_.ask_secret,
                                            .verification = options_.verification,
                                            .sidecar = nullptr,
                                            .budget = options_.budget});
    if (checkpoint.format != "tensorizer") {
      Fail(EBADMSG, "{}: is a checkpoint of format {}, not tensorizer", name_, checkpoint.format);
    }
    for (Member& member : checkpoint.root.members) {
      if (auto* tensor = std::get_if<Tensor>(&member.content)) {
        tensors_.emplace(std::move(member.key.text), std::move(*tensor));
      }
    }
    warnings_ = std::move(checkpoint.warnings);
  } catch (const Error& e) {
    if (e.code() == EKEYREJECTED || IsFatal(e)) throw;
    error_.emplace(EBADMSG, e.what());  // Which names the file.
  }
}

Record Sidecar::Find(uint64_t index) {
  Open();
  Record record{.data = {},
                .member = fmt::format("{}: tensor {}", name_, index),
                .is_in_file = false,
                .error = error_};
  if (error_) return record;
  const auto found = tensors_.find(std::to_string(index));
  if (found == tensors_.end()) {
    record.error.emplace(EBADMSG, fmt::format("{}: tensor {} not found", name_, index));
  } else if (const Tensor& tensor = found->second; !tensor.error) {
    record.data = tensor.data;
  } else {
    record.error = WithContext(record.member, *tensor.error);
  }
  return record;
}

void Sidecar::Report(Checkpoint& checkpoint) const {
  if (!is_open_) return;
  checkpoint.annotations.emplace_back("sidecar", json::String(name_));
  for (const std::string& warning : warnings_) {
    checkpoint.warnings.push_back(fmt::format("{}: {}", name_, warning));
  }
}

namespace {

uint64_t SizeOf(const StorageClass& type, int64_t elements) {
  uint64_t size = 0;
  if (elements < 0 ||
      __builtin_mul_overflow(static_cast<uint64_t>(elements), ItemSize(type.dtype), &size)) {
    Fail(EBADMSG, "its storage has {} elements", elements);
  }
  return size;
}

std::string Short(std::string_view text, std::string_view what) {
  if (text.size() > kMostStorageText) {
    Fail(EBADMSG, "its storage has a {} of {} bytes (maximum {})", what, text.size(),
         kMostStorageText);
  }
  return std::string(text);
}

StorageId MakeStorageId(StorageClass type, std::string_view key, std::string_view location,
                        int64_t elements) {
  return {.type = type,
          .key = Short(key, "key"),
          .location = Short(location, "location"),
          .elements = static_cast<uint64_t>(elements),
          .size = SizeOf(type, elements),
          .view = {},
          .in_sidecar = {}};
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

// In protocol 0 the id is the printed tuple, which PyTorch itself cannot read: ('storage', <class
// 'torch.FloatStorage'>, '0', 'cpu', 6), with ", None" before the end in legacy streams.
StorageId ParseTextId(std::string_view text) {
  constexpr std::string_view kBegin = "('storage', <class '";
  if (!text.starts_with(kBegin)) {
    Fail(EBADMSG, "its persistent id {} is not a storage", Quoted(text));
  }
  text.remove_prefix(kBegin.size());
  const std::string_view path = TakeUntil(text, "'>, '");
  const size_t dot = std::min(path.rfind('.'), path.size());
  const auto type =
      StorageClassNamed(path.substr(0, dot), path.substr(std::min(dot + 1, path.size())));
  if (!type) Fail(EBADMSG, "unsupported storage class {}", Quoted(path));
  const std::string_view key = TakeUntil(text, "', '");
  const std::string_view location = TakeUntil(text, "', ");
  std::string_view digits = TakeUntil(text, ")");
  constexpr std::string_view kNoView = ", None";
  if (digits.ends_with(kNoView)) digits.remove_suffix(kNoView.size());
  const auto elements = ParseNumber<int64_t>(digits);
  if (!elements) Fail(EBADMSG, "its storage has {} elements", Quoted(digits));
  return MakeStorageId(*type, key, location, *elements);
}

// The sixth part of an id: (key of the view, offset, elements). The view's own key is
// redundant: the storage, offset and size identify the view.
StorageId::View ParseView(const StorageId& whole, const Value& metadata) {
  if (metadata.kind != Kind::kTuple || ItemsOf(metadata).size() != 3) {
    Fail(EBADMSG, "its storage is a view, but its description is not a tuple of 3");
  }
  const Values parts = ItemsOf(metadata);
  if (parts[1].kind != Kind::kInt || parts[2].kind != Kind::kInt) {
    Fail(EBADMSG, "its storage is a view without an offset or a size");
  }
  const StorageId::View view{.offset = SizeOf(whole.type, parts[1].integer),
                             .size = SizeOf(whole.type, parts[2].integer)};
  if (view.offset > whole.size || view.size > whole.size - view.offset) {
    Fail(EBADMSG, "its storage is {} bytes from byte {} on of storage {}, which has {} bytes",
         view.size, view.offset, Quoted(whole.key), whole.size);
  }
  return view;
}

bool IsOfTensorizer(const Value& id) {
  if (id.kind != Kind::kTuple || ItemsOf(id).empty()) return false;
  const Value& writer = ItemsOf(id)[0];
  return IsText(writer) && writer.text() == "TensorizerPickler";
}

// ('TensorizerPickler', 0, 'storage', index, dtype or None): see Sidecar.
StorageId ParseTensorizerId(Values parts) {
  if (parts.size() < 3 || parts[1].kind != Kind::kInt || parts[1].integer != 0) {
    Fail(EBADMSG, "its storage has a persistent id of tensorizer that is not of version 0");
  }
  if (parts.size() != 5 || !IsText(parts[2]) || parts[2].text() != "storage" ||
      parts[3].kind != Kind::kInt || parts[3].integer < 0) {
    Fail(EBADMSG,
         "its storage has a persistent id of tensorizer that is not ('TensorizerPickler', "
         "0, 'storage', index, dtype)");
  }
  StorageClass type{.dtype = Dtype::kUint8, .is_untyped = parts[4].kind == Kind::kNone};
  if (!type.is_untyped) {
    const auto dtype = DtypeOf(parts[4]);
    if (!dtype || *dtype == Dtype::kOpaque) Fail(EBADMSG, "unsupported storage dtype");
    type.dtype = *dtype;
  }
  const auto index = static_cast<uint64_t>(parts[3].integer);
  return {.type = type,
          .key = fmt::format("sidecar/{}/{}", index, type.is_untyped ? "bytes" : Name(type.dtype)),
          .location = "cpu",
          .elements = 0,
          .size = 0,
          .view = {},
          .in_sidecar = index};
}

// Both classes that count in bytes are equivalent for bytes.
bool CountsBytes(const StorageClass& type) {
  return type.is_untyped || type.dtype == Dtype::kUint8;
}

bool IsSame(const StorageClass& a, const StorageClass& b) {
  return a.dtype == b.dtype || (CountsBytes(a) && CountsBytes(b));
}

// Memory of a storage in bytes. Its key is also in its name, and the key of the table.
uint64_t CostOf(const StorageId& id) {
  return sizeof(Storage) + 8 * sizeof(void*) + 3 * id.key.size() + id.location.size();
}

}  // namespace

StorageId ParseStorageId(const Value& persistent) {
  const Value& id = ItemsOf(persistent)[0];
  if (id.kind == Kind::kText) return ParseTextId(id.text());
  if (IsOfTensorizer(id)) return ParseTensorizerId(ItemsOf(id));
  const size_t count = id.kind == Kind::kTuple ? ItemsOf(id).size() : 0;
  if (count != 5 && count != 6) {
    Fail(EBADMSG, "its storage has a persistent id that is not a tuple of 5 or 6");
  }
  const Values parts = ItemsOf(id);
  if (!IsText(parts[0]) || parts[0].text() != "storage") {
    Fail(EBADMSG, "its storage has a persistent id that does not begin with 'storage'");
  }
  const auto type = StorageClassOf(parts[1]);
  if (!type) Fail(EBADMSG, "unsupported storage class");
  const bool is_number = parts[2].kind == Kind::kInt;
  if ((!is_number && !IsText(parts[2])) || !IsText(parts[3])) {
    Fail(EBADMSG, "its storage has a persistent id without a key or a location");
  }
  if (parts[4].kind != Kind::kInt) {
    Fail(EBADMSG, "its storage has a persistent id without a number of elements");
  }
  const std::string digits = is_number ? std::to_string(parts[2].integer) : std::string();
  StorageId whole =
      MakeStorageId(*type, is_number ? digits : parts[2].text(), parts[3].text(), parts[4].integer);
  if (count == 6 && parts[5].kind != Kind::kNone) whole.view = ParseView(whole, parts[5]);
  return whole;
}

const Storage& Storages::Whole(StorageId id) {
  const uint64_t hash = HashOf(id.key);
  const uint32_t found = by_key_.Find(hash, [&](uint32_t i) { return wholes_[i].first == id.key; });
  if (found == HashIndex::kNone) {
    budget_.Charge(CostOf(id));
    Record record = id.in_sidecar ? sidecar_.Find(*id.in_sidecar) : find_(id.key);
    if (id.in_sidecar) id.size = record.data.length;
    if (!record.error && record.data.length < id.size) {
      record.error.emplace(
          EBADMSG, fmt::format("{}: too small for its storage (found {} bytes, expected {})",
                               record.member, record.data.length, id.size));
    }
    wholes_.emplace_back(std::move(id.key), Storage{.record = std::move(record),
                                                    .type = id.type,
                                                    .size = id.size,
                                                    .location = std::move(id.location)});
    by_key_.Insert(hash, static_cast<uint32_t>(wholes_.size() - 1));
    return wholes_.back().second;
  }
  const Storage& storage = wholes_[found].second;
  const bool has_size = id.in_sidecar || storage.size == id.size;
  if (!IsSame(storage.type, id.type) || !has_size) {
    Fail(EBADMSG,
         "its storage {} is described in two ways (found {} bytes of {}, expected {} bytes of {})",
         Quoted(id.key), id.size, Name(id.type.dtype), storage.size, Name(storage.type.dtype));
  }
  return storage;
}

const Storage& Storages::Get(const Value& persistent) {
  StorageId id = ParseStorageId(persistent);
  if (!id.view) return Whole(std::move(id));
  const Storage& whole = Whole(id);
  const auto [found, is_new] = views_.try_emplace({id.key, id.view->offset, id.view->size});
  if (is_new) {
    budget_.Charge(CostOf(id));
    Storage& view = found->second;
    view = whole;
    view.size = id.view->size;
    if (!view.record.error) {
      view.record.data.offset += id.view->offset;
      view.record.data.length = id.view->size;
    }
  }
  return found->second;
}

namespace {

// Returns an identity that all calls with the same bytes share, in any form.
const void* IdentityOfBytes(const Value& bytes) {
  constexpr int kMostCalls = 2;  // bytearray(_codecs.encode(text, "latin1"))
  const Value* value = &bytes;
  for (int i = 0; i < kMostCalls && pickle::IsObject(*value); ++i) {
    const auto arguments = ItemsOf(ObjectOf(*value).arguments);
    if (arguments.empty()) break;
    value = &arguments[0];
  }
  const bool is_text =
      value->kind == Kind::kText || value->kind == Kind::kBytes || value->kind == Kind::kByteArray;
  return is_text ? static_cast<const void*>(value->text_data) : value;
}

// Returns the storage that is the object of `file`, which was read from `record`.
Storage ReadNestedStorage(Checkpoint file, const Record& record) {
  auto* tensor =
      file.root.members.size() == 1 ? std::get_if<Tensor>(&file.root.members[0].content) : nullptr;
  if (tensor == nullptr || !tensor->storage) {
    Fail(EBADMSG, "its storage is a file without a storage");
  }
  if (tensor->error) throw Error(EBADMSG, tensor->error->what());
  const StorageType& type = *tensor->storage;
  if (type.is_untyped && type.is_big_endian) {
    Fail(ENOTSUP, "its storage is a big-endian file, and of no type");
  }
  return {.record = {.data = tensor->data,
                     .member = tensor->member,
                     .is_in_file = tensor->is_in_file && record.is_in_file},
          .type = {.dtype = type.dtype, .is_untyped = type.is_untyped},
          .size = tensor->data.length,
          .location = "cpu"};
}

Storage Read(const Value& call, Context& context) {
  const auto arguments = ItemsOf(ObjectOf(call).arguments);
  if (arguments.size() != 1) Fail(EBADMSG, "nested file: missing bytes");
  if (context.is_big_endian) Fail(ENOTSUP, "nested file: unsupported in a big-endian archive");
  const Record record = RecordOfBytes(arguments[0], context);
  return ReadNestedStorage(ReadSaved(record.data, context.reading), record);
}

}  // namespace

const Storage& NestedStorages::Get(const Value& call, Context& context) {
  const auto arguments = ItemsOf(ObjectOf(call).arguments);
  const void* identity = arguments.empty() ? call.node : IdentityOfBytes(arguments[0]);
  const auto [found, is_new] = known_.try_emplace(identity);
  Storage& storage = found->second;
  if (is_new) {
    context.budget.Charge(sizeof(Storage) + 8 * sizeof(void*));
    try {
      storage = Read(call, context);
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      storage.record.error.emplace(EBADMSG, e.what());
    }
  }
  storage.record.Check();
  return storage;
}

const Storage& StorageOf(const Value& value, Context& context) {
  if (value.kind == Kind::kPersistent) return context.storages.Get(value);
  const bool is_file = pickle::IsObject(value) &&
                       FindCallable(ObjectOf(value).target) == KnownCallable::kLoadFromBytes;
  if (!is_file) Fail(EBADMSG, "storage: neither a persistent id nor a file");
  return context.nested.Get(value, context);
}

}  // namespace ckptfs::torch
