// The format of torch.save before 0.1.11: a tar archive of four files.
//
//   sys_info   a pickle: a dict that describes the machine that wrote it
//   storages   a pickle: how many; for each a pickle (key, location, class), an int64 with the
//              number of elements, and the elements; a pickle: a list of storages that are parts
//              of others, (key, key of the whole, offset, elements)
//   tensors    a pickle: how many; for each a pickle (key, key of its storage or None, class), an
//              int32 with the number of dimensions, 4 bytes without a meaning, and as int64 the
//              sizes, the strides, and the offset in the storage
//   pickle     the object; a persistent id is the key of a tensor or of a storage, as text
//
// A tensor is converted to the call that creates it in later formats, so that no other code handles
// this one.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/codec/pickle/builder.h"
#include "parser/codec/tar.h"
#include "parser/format.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/legacy.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/storage.h"

namespace ckptfs {
namespace torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::OfInteger;
using pickle::OfText;
using pickle::Value;

constexpr std::string_view kMembers[] = {"sys_info", "pickle", "tensors", "storages"};

// Memory of an entry of a map without its key and value, in bytes.
constexpr uint64_t kCostOfEntry = 8 * sizeof(void*);

int64_t CountIn(Stream& stream, Reading& reading) {
  const Piece piece = stream.TakePickle("count");
  const pickle::Graph graph = piece.Run("count", reading);
  if (graph.root().kind != Kind::kInt || graph.root().integer < 0) {
    Fail(EBADMSG, "count is not a number from 0 to 2^63");
  }
  return graph.root().integer;
}

// The items of `value` if it is a tuple of `size`.
std::span<const Value> TupleOf(const Value& value, size_t size, std::string_view what) {
  if (value.kind != Kind::kTuple || ItemsOf(value).size() != size) {
    Fail(EBADMSG, "{} is not a tuple of {}", what, size);
  }
  return ItemsOf(value);
}

int64_t KeyIn(const Value& value, std::string_view what) {
  if (value.kind != Kind::kInt) Fail(EBADMSG, "{} has a key that is not a number", what);
  return value.integer;
}

// The tensors and storages of an archive, as values of a graph that all formats have.
class Tables {
 public:
  explicit Tables(Reading& reading) : reading_(reading), arena_(reading.budget), builder_(arena_) {}

  // Read the members of these names. Storages come first. Throw Error.
  void ReadStorages(const Extent& data);
  void ReadTensors(const Extent& data);

  // Returns the storage of a persistent id of the object.
  Value Resolve(const Value& persistent) const;

  // The bytes of a storage. Does not throw.
  Record Find(std::string_view key) const;

 private:
  // The parts of a persistent id.
  struct Described {
    Value type;
    Value key;
    Value location;
    Value elements;
  };

  Value Keep(const Value& text) { return OfText(Kind::kText, builder_.Keep(text.text())); }
  Value Tuple(std::span<const Value> items) { return builder_.MakeNode(Kind::kTuple, items); }
  Value Global(std::string_view module, std::string_view name);
  Value IdOf(const Described& storage, const Value& view);
  void ReadStorage(Stream& stream);
  void ReadViews(Stream& stream);
  void ReadTensor(Stream& stream);
  Value NumbersIn(Stream& stream, int32_t count, std::string_view what);

  Reading& reading_;
  pickle::Arena arena_;
  pickle::Builder builder_;
  std::map<int64_t, Described> storages_;              // Without those that are parts.
  std::map<std::string, Extent, std::less<>> places_;  // By their keys as text.
  std::map<int64_t, Value> objects_;                   // By key; tensors take precedence.
};

Value Tables::Global(std::string_view module, std::string_view name) {
  const Value names[] = {OfText(Kind::kText, module), OfText(Kind::kText, name)};
  return builder_.MakeNode(Kind::kGlobal, names);
}

Value Tables::IdOf(const Described& storage, const Value& view) {
  const Value items[] = {OfText(Kind::kText, "storage"),
                         storage.type,
                         storage.key,
                         storage.location,
                         storage.elements,
                         view};
  const Value id = Tuple(items);
  return builder_.MakeNode(Kind::kPersistent, std::span(&id, 1));
}

void Tables::ReadStorage(Stream& stream) {
  const Piece piece = stream.TakePickle("storage");
  const pickle::Graph graph = piece.Run("storage", reading_);
  const auto parts = TupleOf(graph.root(), 3, "storage");
  const int64_t key = KeyIn(parts[0], "storage");
  const auto type = StorageClassOf(parts[2]);
  if (!type || !IsText(parts[1])) {
    Fail(EBADMSG, "storage {}: unsupported class, or location is missing", key);
  }
  const auto elements = stream.Take<int64_t>("number of elements");
  uint64_t size = 0;
  if (elements < 0 ||
      __builtin_mul_overflow(static_cast<uint64_t>(elements), ItemSize(type->dtype), &size)) {
    Fail(EBADMSG, "storage {} has {} elements", key, elements);
  }
  reading_.budget.Charge(3 * kCostOfEntry + sizeof(Described) + sizeof(Extent));
  const std::string text = std::to_string(key);
  const auto names = ItemsOf(parts[2]);
  const Described storage{
      .type = Global(builder_.Keep(names[0].text()), builder_.Keep(names[1].text())),
      .key = OfText(Kind::kText, builder_.Keep(text)),
      .location = Keep(parts[1]),
      .elements = OfInteger(Kind::kInt, elements)};
  const bool is_new = places_.emplace(text, stream.Skip(size, "storage " + text)).second;
  if (!is_new) Fail(EBADMSG, "duplicate storage {}", key);
  storages_.emplace(key, storage);
  objects_.emplace(key, IdOf(storage, {}));
}

void Tables::ReadViews(Stream& stream) {
  const Piece piece = stream.TakePickle("list of views");
  const pickle::Graph graph = piece.Run("list of views", reading_);
  if (graph.root().kind != Kind::kList) Fail(EBADMSG, "list of views is not a list");
  for (const Value& item : ItemsOf(graph.root())) {
    const auto parts = TupleOf(item, 4, "view");
    const int64_t key = KeyIn(parts[0], "view");
    const auto whole = storages_.find(KeyIn(parts[1], "view"));
    if (whole == storages_.end()) Fail(EBADMSG, "view {}: storage not found", key);
    const Value view[] = {{}, parts[2], parts[3]};
    if (view[1].kind != Kind::kInt || view[2].kind != Kind::kInt) {
      Fail(EBADMSG, "view {}: missing offset or number of elements", key);
    }
    reading_.budget.Charge(kCostOfEntry);
    if (!objects_.emplace(key, IdOf(whole->second, Tuple(view))).second) {
      Fail(EBADMSG, "duplicate storage {}", key);
    }
  }
}

void Tables::ReadStorages(const Extent& data) try {
  Stream stream(data, reading_.budget);
  for (int64_t left = CountIn(stream, reading_); left > 0; --left) ReadStorage(stream);
  ReadViews(stream);
} catch (const Error& e) {
  throw WithContext("storages", e);
}

Value Tables::NumbersIn(Stream& stream, int32_t count, std::string_view what) {
  std::vector<Value> numbers;
  numbers.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    numbers.push_back(OfInteger(Kind::kInt, stream.Take<int64_t>(what)));
  }
  return Tuple(numbers);
}

void Tables::ReadTensor(Stream& stream) {
  const Piece piece = stream.TakePickle("tensor");
  const pickle::Graph graph = piece.Run("tensor", reading_);
  const auto parts = TupleOf(graph.root(), 3, "tensor");
  const int64_t key = KeyIn(parts[0], "tensor");
  const auto dimensions = stream.Take<int32_t>("number of dimensions");
  stream.Skip(sizeof(int32_t), "padding");
  if (dimensions < 0 || dimensions > static_cast<int32_t>(kMaxDimensions)) {
    Fail(EBADMSG, "tensor {}: too many dimensions (found {}, maximum {})", key, dimensions,
         kMaxDimensions);
  }
  const Value shape = NumbersIn(stream, dimensions, "size");
  const Value stride = NumbersIn(stream, dimensions, "stride");
  const Value offset = OfInteger(Kind::kInt, stream.Take<int64_t>("offset"));
  Value tensor;  // None if it has no storage, because its size was never set.
  if (parts[1].kind != Kind::kNone) {
    const auto storage = objects_.find(KeyIn(parts[1], "storage of a tensor"));
    if (storage == objects_.end() || storage->second.kind != Kind::kPersistent) {
      Fail(EBADMSG, "tensor {}: storage not found", key);
    }
    const Value arguments[] = {storage->second, offset, shape, stride};
    tensor = builder_.MakeObject(Kind::kCall, Global("torch._utils", "_rebuild_tensor"),
                                 Tuple(arguments));
  }
  reading_.budget.Charge(kCostOfEntry);
  objects_.insert_or_assign(key, tensor);
}

void Tables::ReadTensors(const Extent& data) try {
  Stream stream(data, reading_.budget);
  for (int64_t left = CountIn(stream, reading_); left > 0; --left) ReadTensor(stream);
} catch (const Error& e) {
  throw WithContext("tensors", e);
}

// An id is a key, or (class, file, source), where the source code of a module was saved, too.
Value Tables::Resolve(const Value& persistent) const {
  const Value& id = ItemsOf(persistent)[0];
  if (id.kind == Kind::kTuple && ItemsOf(id).size() == 3) return ItemsOf(id)[0];
  if (!IsText(id)) return persistent;
  const auto key = ParseNumber<int64_t>(id.text());
  const auto found = key ? objects_.find(*key) : objects_.end();
  return found == objects_.end() ? persistent : found->second;
}

Record Tables::Find(std::string_view key) const {
  Record record{.data = {}, .member = fmt::format("storage {}", key), .is_in_file = true};
  const auto found = places_.find(key);
  if (found == places_.end()) {
    record.error.emplace(EBADMSG, fmt::format("storage {} not found in the archive", Quoted(key)));
  } else {
    record.data = found->second;
  }
  return record;
}

// The member `name` of an archive.
Extent MemberOf(const ByteSourcePtr& source, std::span<const tar::Member> members,
                std::string_view name) {
  const auto found = std::ranges::lower_bound(members, name, {}, &tar::Member::name);
  if (found == members.end() || found->name != name) {
    Fail(EBADMSG, "member {} not found in the archive", Quoted(name));
  }
  if (!found->error.empty()) Fail(ENOTSUP, "the member {} {}", Quoted(name), found->error);
  return {source, found->offset, found->size};
}

Checkpoint ReadTar(const ByteSourcePtr& source, Reading& reading) {
  Budget& budget = reading.budget;
  const std::vector<tar::Member> members = [&] {
    try {
      return tar::ReadDirectory(*source, budget);
    } catch (const Error& e) {
      throw WithContext("tar", e);
    }
  }();
  Tables tables(reading);
  tables.ReadStorages(MemberOf(source, members, "storages"));
  tables.ReadTensors(MemberOf(source, members, "tensors"));
  const Piece objects = Stream(MemberOf(source, members, "pickle"), budget).TakePickle("pickle");
  const Piece system = Stream(MemberOf(source, members, "sys_info"), budget).TakePickle("sys_info");

  Storages storages(budget, reading.sidecar,
                    [&](std::string_view key) { return tables.Find(key); });
  Context context{.reading = reading,
                  .storages = storages,
                  .pickle = objects.bytes,
                  .pickle_record = {.data = objects.place, .member = "pickle", .is_in_file = true}};
  Checkpoint checkpoint;
  RecordSystem(system.Run("sys_info", reading).root(), checkpoint);
  AddPickle("pickle", context, checkpoint,
            [&](const Value& persistent) { return tables.Resolve(persistent); });
  return checkpoint;
}

}  // namespace
}  // namespace torch

namespace {

bool MatchesTorchTar(const Probe& probe) {
  return std::ranges::count(torch::kMembers, tar::FirstName(probe.head)) != 0;
}

Checkpoint ParseTorchTar(const Source& source, const ReadOptions& options) {
  Budget& budget = *options.budget;
  torch::Reading reading(budget, source, options);
  Checkpoint checkpoint = torch::ReadTar(source.file, reading);
  reading.Report(checkpoint);
  return checkpoint;
}

}  // namespace

extern const Format torch_tar_format{
    .name = "torch-tar", .matches = MatchesTorchTar, .parse = ParseTorchTar};

}  // namespace ckptfs
