#include "parser/format/torch/nested.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <variant>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/format/torch/bytes.h"
#include "parser/format/torch/context.h"
#include "parser/format/torch/saved.h"
#include "parser/format/torch/tensor.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {
namespace {

using pickle::Kind;
using pickle::Value;

// What is the same for all calls that are given the same bytes, however these are spelled.
const void* IdentityOf(const Value& bytes) {
  constexpr int kMostCalls = 2;  // bytearray(_codecs.encode(text, "latin1"))
  const Value* value = &bytes;
  for (int i = 0; i < kMostCalls && pickle::IsObject(*value); ++i) {
    const auto arguments = pickle::ItemsOf(pickle::ObjectOf(*value).arguments);
    if (arguments.empty()) break;
    value = &arguments[0];
  }
  const bool is_text =
      value->kind == Kind::kText || value->kind == Kind::kBytes || value->kind == Kind::kByteArray;
  return is_text ? static_cast<const void*>(value->text_data) : value;
}

// The value of the note `name`; empty if there is none.
std::string_view AnnotationOf(const std::vector<Annotation>& annotations, std::string_view name) {
  const auto found = std::ranges::find(annotations, name, &Annotation::first);
  return found == annotations.end() ? std::string_view() : std::string_view(found->second);
}

// The element type of the storage that `tensor` shows.
Dtype DtypeIn(const Tensor& tensor) {
  constexpr std::string_view kBegin = "\"torch.";
  std::string_view name = AnnotationOf(tensor.annotations, "storage_dtype");
  if (!name.starts_with(kBegin)) return tensor.dtype;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - 1);
  return DtypeNamed(name).value_or(tensor.dtype);
}

// The storage that is all of `file`, which `record` is.
Storage StorageIn(Checkpoint file, const Record& record) {
  auto* tensor =
      file.root.members.size() == 1 ? std::get_if<Tensor>(&file.root.members[0].content) : nullptr;
  const std::string_view type =
      tensor == nullptr ? std::string_view() : AnnotationOf(tensor->annotations, "python_type");
  const bool is_untyped = type == kUntypedStorageAnnotation;
  if (!is_untyped && type != kTypedStorageAnnotation) {
    Fail(EBADMSG, "its storage is a file that has no storage in it");
  }
  if (!tensor->error.empty()) throw Error(EBADMSG, tensor->error);
  if (is_untyped && AnnotationOf(file.annotations, "byteorder") == "\"big\"") {
    Fail(ENOTSUP, "its storage is a big-endian file, and of no type");
  }
  return {.record = {.data = tensor->data,
                     .member = tensor->member,
                     .is_in_file = tensor->is_in_file && record.is_in_file,
                     .error = ""},
          .type = {.dtype = DtypeIn(*tensor), .is_untyped = is_untyped},
          .size = tensor->data.length,
          .location = "cpu"};
}

Storage Read(const Value& call, Context& context) {
  const auto arguments = pickle::ItemsOf(pickle::ObjectOf(call).arguments);
  if (arguments.size() != 1) Fail(EBADMSG, "its storage is a file without bytes");
  if (context.is_big_endian) Fail(ENOTSUP, "its storage is a file in a big-endian archive");
  const Record record = RecordOfBytes(arguments[0], context);
  return StorageIn(ReadSaved(record.data, context.reading), record);
}

}  // namespace

const Storage& NestedStorages::Get(const Value& call, Context& context) {
  const auto arguments = pickle::ItemsOf(pickle::ObjectOf(call).arguments);
  const void* identity = arguments.empty() ? call.node : IdentityOf(arguments[0]);
  const auto [found, is_new] = known_.try_emplace(identity);
  Storage& storage = found->second;
  if (is_new) {
    context.budget.Charge(sizeof(Storage) + 8 * sizeof(void*));
    try {
      storage = Read(call, context);
    } catch (const Error& e) {
      if (e.code() == EFBIG || IsTransient(e.code())) throw;
      storage.record.error = e.what();
    }
  }
  if (!storage.record.error.empty()) throw Error(EBADMSG, storage.record.error);
  return storage;
}

const Storage& StorageOf(const Value& value, Context& context) {
  if (value.kind == Kind::kPersistent) return context.storages.Get(value);
  const bool is_file = pickle::IsObject(value) &&
                       KnownCallable(pickle::ObjectOf(value).target) == Known::kLoadFromBytes;
  if (!is_file) Fail(EBADMSG, "its storage is none of the file's");
  return context.nested.Get(value, context);
}

}  // namespace ckptfs::torch
