#include "parser/format/torch/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/nesting_level.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/tensordict/collection.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/children.h"
#include "parser/format/torch/composite.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/legacy.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/tensor.h"
#include "parser/format/torch/value.h"

namespace ckptfs::torch {
namespace {

// Honest files are nested twice at most: a pickled storage in an object of a checkpoint in several
// files.
constexpr int kMostNesting = 2;

}  // namespace

Checkpoint ReadSaved(const Extent& data, Reading& reading) {
  if (reading.depth == kMostNesting) {
    Fail(EFBIG, "files are nested more than {} levels deep", kMostNesting);
  }
  const NestingLevel level(reading.depth);
  std::vector<std::byte> head(std::min<uint64_t>(data.length, kLegacyHead));
  if (!head.empty()) data.source->ReadAt(data.offset, head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("PK\3\4")) return ReadZip(data, reading);
  if (IsLegacy(text)) return ReadLegacy(data, reading);
  return ReadPlainPickle({.data = data, .member = "", .is_in_file = true}, reading);
}

Checkpoint ReadWholePickle(const Record& record, Reading& reading) {
  const Extent& data = record.data;
  const uint64_t length = data.length;
  reading.budget.Charge(length);
  reading.budget.WorkOnBytes(length);
  std::vector<std::byte> bytes(length);
  data.source->ReadAt(data.offset, bytes);
  Storages storages(reading.budget, reading.sidecar, [](std::string_view) {
    return Record{.data = {},
                  .member = "",
                  .is_in_file = false,
                  .error = Error(EBADMSG, "a plain pickle has no storages")};
  });
  Context context{
      .reading = reading, .storages = storages, .pickle = bytes, .pickle_record = record};
  Checkpoint checkpoint;
  AddPickle("", context, checkpoint);
  return checkpoint;
}

Checkpoint ReadPlainPickle(const Record& record, Reading& reading, uint64_t* length) {
  const Extent& data = record.data;
  uint64_t size = 0;
  Checkpoint checkpoint;
  if (const auto found = pickle::LengthUnless(data, kJoblibArray, reading.budget)) {
    size = *found;
    Record whole = record;
    whole.data = {data.source, data.offset, size};
    checkpoint = ReadWholePickle(whole, reading);
  } else {
    checkpoint = ReadJoblib(record, reading, size);
  }
  if (length != nullptr) *length = size;
  return checkpoint;
}

void AddPickle(std::string_view name, Context& context, Checkpoint& checkpoint,
               const pickle::Resolve& resolve) try {
  const pickle::Graph graph = pickle::Load(context.pickle, context.budget, resolve);
  context.reading.globals.Add(graph);
  AddObjects(graph.root(), context, checkpoint);
  if (const size_t strays = graph.stray_states().size() / 2; strays > 0) {
    checkpoint.warnings.push_back(
        fmt::format("{}{}{} values that are not objects have a state, which is ignored", name,
                    name.empty() ? "" : ": ", strays));
  }
} catch (const Error& e) {
  if (name.empty()) throw;
  throw WithContext(name, e);
}

namespace {

// A list of values, whose dimension load_memmap requires.
constexpr std::string_view kNonTensorStack = "tensordict.tensorclass.NonTensorStack";

// The placeholder for an object that contains itself.
ckptfs::Value Cycle() { return {.json = "\"...\"", .python_type = "cycle", .annotations = {}}; }

// The depth of the recursion is that of nested objects, which CheckDepth bounds.
class ObjectWalk {
 public:
  ObjectWalk(Context& context, Checkpoint& checkpoint)
      : context_(context), checkpoint_(checkpoint) {}

  void AddRoot(const Value& wrapped);

 private:
  // Memory of a member until the tree is built, in bytes, without its texts.
  static constexpr uint64_t kCostOfMember = sizeof(Member);

  static void CheckDepth(int depth) {
    if (depth > kMaxDepth) {
      Fail(EFBIG, "objects are nested more than {} levels deep", kMaxDepth);
    }
  }

  bool HasTensor(const Value& wrapped, int depth);
  void FillGroup(const Interpretation& interpretation, Group& group, int depth);
  std::unique_ptr<Group> MakeGroup(const Value& value, int depth);
  Content MakeContent(const Value& wrapped, int depth);
  ckptfs::Value MakeValue(const Value& value);
  Content MakeTensor(const Value& value, decltype(Part::fill) fill = FillTensor);
  Content MakeComposite(const Value& value, int depth);
  Content MakePart(const Part& part, int depth);
  Content WarnAndMakePlaceholder(Tensor tensor, const Error& error);
  void ChargeTexts(const Tensor& tensor);
  void ExtendPath(std::string_view key);
  void AddAttribute(std::string_view name, const ckptfs::Value& value, std::string& attributes);

  Context& context_;
  Checkpoint& checkpoint_;
  std::unordered_map<const pickle::Node*, bool> has_tensor_;  // False also during the search.
  std::unordered_set<const pickle::Node*> ancestors_;         // Of the current object.
  std::string path_;                                          // Its keys joined by dots, truncated.
  size_t readable_ = 0;                                       // Tensors with bytes.
  bool has_collection_ = false;
  std::optional<Error> first_damage_;
};

bool ObjectWalk::HasTensor(const Value& wrapped, int depth) {
  CheckDepth(depth);
  const Value& value = Unwrapped(wrapped);
  if (ClassifyTensor(value) != TensorKind::kNone) return true;
  if (IsLeaf(value)) return false;
  const auto [known, is_new] = has_tensor_.try_emplace(value.node, false);
  if (!is_new) return known->second;
  context_.budget.Charge(4 * sizeof(void*));
  bool has_tensor = false;
  // Visits all children, so that the depth is checked everywhere.
  const auto look = [&](const Value& child) {
    has_tensor = HasTensor(child, depth + 1) || has_tensor;
  };
  if (IsSequence(value)) {  // Millions of numbers, perhaps: no child is made of each.
    context_.budget.Work(ItemsOf(value).size());
    std::ranges::for_each(ItemsOf(value), look);
  } else {
    const Interpretation interpretation = Interpret(value, context_.budget);
    has_tensor = interpretation.is_collection;
    std::ranges::for_each(interpretation.children, look, &Child::value);
  }
  has_tensor_[value.node] = has_tensor;
  return has_tensor;
}

// Messages quote the beginning of a path, and keys may be long.
void ObjectWalk::ExtendPath(std::string_view key) {
  constexpr size_t kMost = 256;  // Bytes.
  if (path_.size() >= kMost) return;
  if (!path_.empty()) path_ += '.';
  path_ += key.substr(0, kMost);
}

// Adds a member to the JSON object whose members `attributes` are.
void ObjectWalk::AddAttribute(std::string_view name, const ckptfs::Value& value,
                              std::string& attributes) {
  const std::string quoted = json::String(name);
  context_.budget.Charge(4 * (quoted.size() + value.json.size()));
  if (!attributes.empty()) attributes += ',';
  attributes.append(quoted).append(":").append(value.json);
}

// Many tensors may share one long type or state; each has a copy in its annotations.
void ObjectWalk::ChargeTexts(const Tensor& tensor) {
  context_.budget.Charge(2 * tensor.foreign_dtype.size());
  for (const auto& [name, json] : tensor.annotations) context_.budget.Charge(2 * json.size());
}

Content ObjectWalk::WarnAndMakePlaceholder(Tensor tensor, const Error& error) {
  ChargeTexts(tensor);
  // A missing key is not corruption, and the sidecar reports it once for all tensors.
  if (error.code() == ENOKEY) return MakePlaceholder(std::move(tensor), error);
  WarnOfUnreadable(path_, error, context_.budget, checkpoint_);
  if (!first_damage_) first_damage_ = WithContext("tensor " + Quoted(path_), error);
  return MakePlaceholder(std::move(tensor), error);
}

Content ObjectWalk::MakeTensor(const Value& value, decltype(Part::fill) fill) {
  context_.budget.Charge(
      kCostOfMember);  // Once more: shape, annotations, and its files in the tree.
  Tensor tensor;
  try {
    fill(value, context_, tensor);
  } catch (const Error& e) {
    // The budget, an invalid key and a lack of memory affect all tensors.
    if (e.code() == EKEYREJECTED || IsFatal(e)) throw;
    return WarnAndMakePlaceholder(std::move(tensor), e);
  }
  ChargeTexts(tensor);
  if (tensor.data.length > 0) ++readable_;
  return tensor;
}

Content ObjectWalk::MakePart(const Part& part, int depth) {
  const size_t length = path_.size();
  ExtendPath(part.name);
  Content content =
      part.fill != nullptr ? MakeTensor(part.value, part.fill) : MakeContent(part.value, depth + 1);
  path_.resize(length);
  return content;
}

Content ObjectWalk::MakeComposite(const Value& value, int depth) {
  if (ancestors_.contains(value.node)) return Cycle();
  Composite composite;
  try {
    composite = DecomposeTensor(value, context_);
  } catch (const Error& e) {
    if (IsFatal(e)) throw;
    return WarnAndMakePlaceholder({}, e);
  }
  auto group = std::make_unique<Group>();
  context_.budget.Charge((composite.parts.size() + composite.about.size() + 1) * kCostOfMember);
  // Many tensors may share one large mesh or list of shards; each has a copy of it, temporarily
  // two.
  for (const auto& [name, json] : composite.about) context_.budget.Charge(2 * json.size());
  std::string attributes;
  ancestors_.insert(value.node);
  for (Part& part : composite.parts) {
    Content content = MakePart(part, depth);
    const auto* attribute = std::get_if<ckptfs::Value>(&content);
    if (attribute != nullptr && attribute->json.size() <= kMaxInlineJson) {
      AddAttribute(part.name, *attribute, attributes);
    } else {
      group->members.push_back({{std::move(part.name), Key::Kind::kText}, std::move(content)});
    }
  }
  ancestors_.erase(value.node);
  if (!attributes.empty()) {
    composite.about.emplace_back("attributes", fmt::format("{{{}}}", attributes));
  }
  if (group->members.empty()) {
    ckptfs::Value described{.json = "", .python_type = "tensor", .annotations = {}};
    // The data of a value has no members of ckptfs, so the recipe is in its entry.
    const auto recipe = std::ranges::find(composite.about, "recipe", &Annotation::first);
    if (recipe != composite.about.end()) {
      described.annotations.push_back(std::move(*recipe));
      composite.about.erase(recipe);
    }
    described.json = json::Object(composite.about);
    return described;
  }
  group->python_type = TensorClassOf(UnwrapTensor(value));
  group->about = std::move(composite.about);
  return group;
}

Content ObjectWalk::MakeContent(const Value& wrapped, int depth) {
  CheckDepth(depth);
  const Value& value = Unwrapped(wrapped);
  switch (ClassifyTensor(value)) {
    case TensorKind::kDense:
      return MakeTensor(value);
    case TensorKind::kComposite:
      return MakeComposite(value, depth);
    case TensorKind::kNone:
      break;
  }
  if (!HasTensor(value, depth)) return MakeValue(value);
  if (ancestors_.contains(value.node)) return Cycle();
  return MakeGroup(value, depth);
}

ckptfs::Value ObjectWalk::MakeValue(const Value& value) try {
  ckptfs::Value plain = ValueOf(value, context_.budget);
  if (plain.python_type == kNonTensorStack) {
    plain.collection = Interpret(value, context_.budget).collection;
  }
  return plain;
} catch (const Error& e) {
  if (e.code() != EOVERFLOW) throw;
  constexpr uint64_t kCopies = 6;  // Of the message in JSON, until meta.json has it.
  std::string warning = fmt::format("value {}: {}", Quoted(path_), e.what());
  context_.budget.Charge(kCopies * warning.size());
  checkpoint_.warnings.push_back(std::move(warning));
  return tensordict::Lost(Interpret(value, context_.budget).type, e);
}

std::unique_ptr<Group> ObjectWalk::MakeGroup(const Value& value, int depth) {
  auto group = std::make_unique<Group>();
  ancestors_.insert(value.node);
  FillGroup(Interpret(value, context_.budget), *group, depth);
  ancestors_.erase(value.node);
  return group;
}

void ObjectWalk::FillGroup(const Interpretation& interpretation, Group& group, int depth) {
  const bool has_items =
      interpretation.kind == ValueKind::kSequence || interpretation.kind == ValueKind::kMapping;
  if (interpretation.type != "dict") group.python_type = interpretation.type;
  if (interpretation.is_collection) group.collection = interpretation.collection;
  has_collection_ = has_collection_ || interpretation.is_collection;
  context_.budget.Charge(interpretation.children.size() * kCostOfMember +
                         2 * interpretation.type.size());
  group.members.reserve(interpretation.children.size());
  std::string attributes;  // Of a container: the children that are not its items.
  for (const Child& child : interpretation.children) {
    Key key = KeyOf(child.key);
    if (interpretation.is_collection && key.kind == Key::Kind::kText) key.kind = Key::Kind::kWhole;
    const size_t length = path_.size();
    ExtendPath(key.text);
    // As long as there are members, and in JSON, where a byte may take six.
    context_.budget.Charge(2 * key.text.size());
    Content content = MakeContent(child.value, depth + 1);
    path_.resize(length);
    auto* value = std::get_if<ckptfs::Value>(&content);
    const bool is_short = value != nullptr && value->json.size() <= kMaxInlineJson;
    if (has_items && child.role == Child::Role::kAttribute && is_short) {
      AddAttribute(key.text, *value, attributes);
    } else {
      group.members.push_back({std::move(key), std::move(content)});
    }
  }
  if (!attributes.empty())
    group.annotations.emplace_back("attributes", fmt::format("{{{}}}", attributes));
}

void ObjectWalk::AddRoot(const Value& wrapped) {
  const Value& root = Unwrapped(wrapped);
  const bool is_tensor = ClassifyTensor(root) != TensorKind::kNone;
  const bool is_part = context_.reading.is_part;
  bool is_container = false;
  if (!is_tensor && !is_part && !IsLeaf(root)) {
    const Interpretation interpretation = Interpret(root, context_.budget);
    is_container = interpretation.kind == ValueKind::kSequence ||
                   interpretation.kind == ValueKind::kMapping ||
                   (interpretation.kind != ValueKind::kLeaf && HasTensor(root, 0));
    ancestors_.insert(root.node);
    if (is_container) FillGroup(interpretation, checkpoint_.root, 0);
  }
  if (!is_container) {
    path_ = is_tensor ? "tensor" : "value";
    Content content = MakeContent(root, 0);
    checkpoint_.root.members.push_back(
        {{is_part ? "" : path_, Key::Kind::kText}, std::move(content)});
  }
  if (has_collection_) {
    tensordict::DropBatchSizesAroundComposites(checkpoint_.root, context_.budget);
  }
  if (first_damage_ && readable_ == 0) throw Error(EBADMSG, first_damage_->what());
}

}  // namespace

void AddObjects(const Value& root, Context& context, Checkpoint& checkpoint) {
  ObjectWalk(context, checkpoint).AddRoot(root);
}

}  // namespace ckptfs::torch
