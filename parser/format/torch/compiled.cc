// Models that AOTInductor compiles and torch packages as .pt2. The code is a shared library, which
// usually contains the weights. The writer can store them beside it instead:
//
//   folder/data/aotinductor/MODEL/weights_config.json  {NAME: [RECORD, shape, stride, offset]}
//   folder/data/weights/RECORD                         a tensor, as torch.save writes it
//   folder/data/aotinductor/MODEL/*.bin, *.blob        all weights of the model, without names
//
// A record that no config lists is shown as bytes, under its own name.

#include "parser/format/torch/compiled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/codec/json_document.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::torch {
namespace {

constexpr std::string_view kModels = "data/aotinductor/";
constexpr std::string_view kWeights = "data/weights/";
constexpr std::string_view kConfig = "/weights_config.json";
constexpr uint64_t kCostOfMember = 2 * sizeof(Member);

// Whether `record` has weights, and is not a table of torch.export.
bool HasWeights(std::string_view record) {
  return (record.starts_with(kWeights) && !record.ends_with("_weights_config.json")) ||
         (record.starts_with(kModels) && (record.ends_with(".bin") || record.ends_with(".blob")));
}

std::vector<uint64_t> NumbersIn(const std::optional<json::Node>& list, std::string_view what) {
  std::vector<uint64_t> numbers;
  if (!list || !list->is_list()) Fail(EBADMSG, "{}: not a list", what);
  json::Items items(*list);
  while (const auto item = items.Next()) {
    if (item->kind() != json::Node::Kind::kWhole || numbers.size() == kMaxDimensions) {
      Fail(EBADMSG, "{}: not a list of at most {} sizes", what, kMaxDimensions);
    }
    numbers.push_back(item->whole());
  }
  return numbers;
}

class Reader {
 public:
  Reader(const Archive& archive, bool is_big_endian, Reading& reading, Checkpoint& checkpoint)
      : archive_(archive),
        storages_(reading.budget, reading.sidecar, [](std::string_view) { return Record(); }),
        context_{.reading = reading, .storages = storages_, .is_big_endian = is_big_endian},
        checkpoint_(checkpoint) {}

  bool Read() {
    const std::string prefix = archive_.prefix();
    std::vector<std::string> records;
    for (const zip::Member& member : archive_.members()) {
      if (!member.name.starts_with(prefix)) continue;
      std::string record(member.name.substr(prefix.size()));
      if (record.starts_with(kModels) && record.ends_with(kConfig)) AddModel(record);
      if (HasWeights(record)) records.push_back(std::move(record));
    }
    auto rest = std::make_unique<Group>();
    for (const std::string& record : records) {
      if (!tensors_.contains(record)) AddRecord(record, *rest);
    }
    const bool is_alone = models_.size() == 1 && rest->members.empty();
    for (auto& [model, group] : models_) {
      if (is_alone) {
        AddGroup("weights", std::move(group), checkpoint_.root);
      } else {
        auto parent = std::make_unique<Group>();
        AddGroup("weights", std::move(group), *parent);
        AddGroup(model, std::move(parent), checkpoint_.root);
      }
    }
    if (!rest->members.empty()) AddGroup("weights", std::move(rest), checkpoint_.root);
    return !checkpoint_.root.members.empty();
  }

 private:
  void AddGroup(std::string name, std::unique_ptr<Group> group, Group& parent) {
    context_.budget.Charge(kCostOfMember + sizeof(Group) + name.size());
    parent.members.push_back({{std::move(name), Key::Kind::kWhole}, std::move(group)});
  }

  // The model of the config `record`.
  void AddModel(const std::string& record) try {
    const Record config = archive_.Require(record);
    context_.budget.Charge(config.data.length);  // A small deflated record may be large.
    const auto document = json::Document::Of(config.data, context_.budget);
    if (!document.root().is_object()) Fail(EBADMSG, "is not a JSON object");
    auto group = std::make_unique<Group>();
    for (const auto& [name, entry] : json::UniqueMembers(document.root(), context_.budget)) {
      context_.budget.Charge(kCostOfMember + name.size());
      Content content = NamedBy(name, entry);
      group->members.push_back({{std::string(name)}, std::move(content)});
    }
    if (group->members.empty()) return;
    std::string model = record.substr(kModels.size());
    model.resize(model.size() - kConfig.size());
    models_.emplace_back(std::move(model), std::move(group));
  } catch (const Error& e) {
    throw WithContext(record, e);
  }

  Content NamedBy(std::string_view name, json::Node entry) {
    Tensor tensor;
    try {
      const bool is_entry = entry.is_list() && entry.count() == 4;
      if (!is_entry) Fail(EBADMSG, "not a list of record, shape, stride and offset");
      json::Items items(entry);
      const auto record = items.Next();
      if (!record->is_text()) Fail(EBADMSG, "its record is not text");
      View view{.dtype = Dtype::kOpaque,
                .shape = NumbersIn(items.Next(), "shape"),
                .stride = NumbersIn(items.Next(), "stride"),
                .is_big_endian = false};
      const auto offset = items.Next();
      if (offset->kind() != json::Node::Kind::kWhole) Fail(EBADMSG, "its offset is not a number");
      const Tensor& whole = TensorOf(std::string(kWeights) + std::string(record->text()));
      if (whole.error) throw Error(*whole.error);
      view.dtype = whole.dtype;
      const Storage storage = {
          .record = {.data = whole.data, .member = whole.member, .is_in_file = whole.is_in_file},
          .type = {.dtype = whole.dtype},
          .size = whole.data.length,
          .location = "cpu"};
      FillView(storage, offset->whole(), view, context_, tensor);
      return tensor;
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      WarnOfUnreadable(name, e, context_.budget, checkpoint_);
      return MakePlaceholder(std::move(tensor), e);
    }
  }

  // Returns the tensor saved in `record`; else the bytes of the record.
  const Tensor& TensorOf(const std::string& record) {
    const auto known = tensors_.find(record);
    if (known != tensors_.end()) return known->second;
    context_.budget.Charge(sizeof(Tensor) + kCostOfMember + record.size());
    Tensor tensor;
    const Record opened = archive_.Require(record);
    try {
      Checkpoint saved = ReadSaved(opened.data, context_.reading);
      auto* only = saved.root.members.size() == 1
                       ? std::get_if<Tensor>(&saved.root.members.front().content)
                       : nullptr;
      if (only == nullptr) Fail(EBADMSG, "{} is not a single tensor", record);
      tensor = std::move(*only);
      tensor.member = record;
      tensor.is_in_file &= opened.is_in_file;
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      tensor = TensorOfBytes(opened);
    }
    return tensors_.emplace(record, std::move(tensor)).first->second;
  }

  // A record that no config lists.
  void AddRecord(const std::string& record, Group& group) {
    context_.budget.Charge(kCostOfMember + record.size());
    Tensor tensor;
    try {
      tensor =
          record.starts_with(kWeights) ? TensorOf(record) : TensorOfBytes(archive_.Require(record));
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      checkpoint_.warnings.push_back(fmt::format("{}: ignored", e.what()));
      return;
    }
    group.members.push_back(
        {{record.substr(record.rfind('/') + 1), Key::Kind::kWhole}, std::move(tensor)});
  }

  const Archive& archive_;
  Storages storages_;  // Empty: records are found by their names.
  Context context_;
  Checkpoint& checkpoint_;
  std::vector<std::pair<std::string, std::unique_ptr<Group>>> models_;
  std::map<std::string, Tensor> tensors_;  // By record.
};

// Whether there is a compiled library, or a file that belongs to one.
bool IsCompiled(const Archive& archive) {
  return std::ranges::any_of(archive.members(), [&](const zip::Member& member) {
    return member.name.starts_with(archive.prefix()) &&
           std::string_view(member.name).substr(archive.prefix().size()).starts_with(kModels);
  });
}

bool HasConfig(const Archive& archive) {
  return std::ranges::any_of(archive.members(), [](const zip::Member& member) {
    return member.name.ends_with("_weights_config.json");
  });
}

}  // namespace

bool AddCompiled(const Archive& archive, bool is_big_endian, Reading& reading,
                 Checkpoint& checkpoint) {
  if (!IsCompiled(archive)) return false;
  const bool has_weights = Reader(archive, is_big_endian, reading, checkpoint).Read();
  if (!has_weights && !HasConfig(archive)) {
    Fail(ENOTSUP,
         "is a model compiled by AOTInductor without separate weights: they are in its shared "
         "library (unsupported) or were not packaged");
  }
  return has_weights;
}

}  // namespace ckptfs::torch
