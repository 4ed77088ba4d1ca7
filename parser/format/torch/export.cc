// torch.export: torch.export.save writes since 2.9 an archive without a pickle:
//
//   folder/data/weights/MODEL_weights_config.json        which tensor is what view of which record
//   folder/data/weights/weight_0                         the bytes of a storage
//   folder/data/constants/MODEL_constants_config.json    the same of constants
//   folder/models/MODEL.json                             the graph, and no concern of ours
//
// A tensor of a subclass is a record with a file of torch.save. Before 2.9, all tensors were in one
// such file, in an archive without a folder.

#include "parser/format/torch/export.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_reader.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/torch/compiled.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/tensor.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {
namespace {

// The table of tensors is JSON:
//
//   {"config": {NAME: {"path_name": "weight_0", "is_param": true, "use_pickle": false,
//                      "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}], "strides": [...],
//                                      "storage_offset": {"as_int": 0}, "layout": 7,
//                                      "device": {"type": "cpu"}, "requires_grad": true}}}}
struct ExportedTensor {
  std::string name;
  std::string record;       // Beside the table.
  bool is_pickled = false;  // The record is a file of torch.save; the members below are unset.
  bool is_parameter = false;
  bool requires_grad = false;
  uint64_t dtype = 0;   // ScalarType of torch._export.serde.schema.
  uint64_t layout = 0;  // Likewise, Layout.
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> strides;  // In elements.
  uint64_t offset = 0;            // In elements.
  std::string device = "cpu";
};

// `path_` has the key of each object around the current value, an empty one for a list:
// "config", NAME, "tensor_meta", "sizes", "", "as_int".
class ExportConfigReader final : public json::Visitor {
 public:
  explicit ExportConfigReader(const std::function<void(ExportedTensor)>& add) : add_(add) {}

  void Begin(bool /*is_object*/) override {
    if (IsInTable()) {
      tensor_ = {};
      tensor_.name = path_[1];
    }
    path_.emplace_back();
  }

  void End(bool is_object) override {
    path_.pop_back();
    if (is_object && IsInTable()) add_(std::move(tensor_));
  }

  void Key(std::string& key) override { path_.back() = std::move(key); }

  void Text(std::string& text) override {
    if (IsAt(3, "path_name")) tensor_.record = text;
    if (IsAt(5, "type") && path_[3] == "device") tensor_.device = text;
  }

  void Whole(uint64_t number) override {
    if (IsAt(4, "dtype")) tensor_.dtype = number;
    if (IsAt(4, "layout")) tensor_.layout = number;
    if (IsAt(5, "as_int") && path_[3] == "storage_offset") tensor_.offset = number;
    if (!IsAt(6, "as_int")) return;
    if (path_[3] == "sizes") Append(tensor_.sizes, number);
    if (path_[3] == "strides") Append(tensor_.strides, number);
  }

  void Other(std::string_view json) override {
    const bool is_true = json == "true";
    if (IsAt(3, "is_param")) tensor_.is_parameter = is_true;
    if (IsAt(3, "use_pickle")) tensor_.is_pickled = is_true;
    if (IsAt(4, "requires_grad")) tensor_.requires_grad = is_true;
    if (IsAt(5, "as_int") || IsAt(6, "as_int")) {
      Fail(EBADMSG, "tensor {}: invalid size, stride or offset {}", Quoted(tensor_.name),
           Quoted(json));
    }
  }

 private:
  // Whether the next value describes one tensor of the table.
  bool IsInTable() const { return path_.size() == 2 && path_[0] == "config"; }

  // Whether the next value is named `name` in the table, in `depth` objects and lists.
  bool IsAt(size_t depth, std::string_view name) const {
    return path_.size() == depth && path_.back() == name && path_[0] == "config" &&
           (depth < 4 || path_[2] == "tensor_meta");
  }

  void Append(std::vector<uint64_t>& numbers, uint64_t number) const {
    if (numbers.size() == kMaxDimensions) {
      Fail(EBADMSG, "tensor {}: has more than {} dimensions", Quoted(tensor_.name), kMaxDimensions);
    }
    numbers.push_back(number);
  }

  const std::function<void(ExportedTensor)>& add_;
  std::vector<std::string> path_;
  ExportedTensor tensor_;
};

// Calls `add` for each tensor of the table `json`, in its order, without keeping any. Throws Error:
// EBADMSG if `json` is not such a table, and the errors of `add`.
void ReadExportConfig(const Extent& json, Budget& budget,
                      const std::function<void(ExportedTensor)>& add) {
  ExportConfigReader reader(add);
  json::Read(*json.source, json.offset, json.length, budget, reader);
}

// The numbers of torch._export.serde.schema.ScalarType.
std::optional<Dtype> DtypeOfNumber(uint64_t number) {
  constexpr std::pair<uint64_t, Dtype> kTypes[] = {
      {1, Dtype::kUint8},           {2, Dtype::kInt8},
      {3, Dtype::kInt16},           {4, Dtype::kInt32},
      {5, Dtype::kInt64},           {6, Dtype::kFloat16},
      {7, Dtype::kFloat32},         {8, Dtype::kFloat64},
      {9, Dtype::kComplex32},       {10, Dtype::kComplex64},
      {11, Dtype::kComplex128},     {12, Dtype::kBool},
      {13, Dtype::kBfloat16},       {28, Dtype::kUint16},
      {29, Dtype::kFloat8E4m3fn},   {30, Dtype::kFloat8E5m2},
      {31, Dtype::kFloat8E4m3fnuz}, {32, Dtype::kFloat8E5m2fnuz},
      {33, Dtype::kFloat8E8m0fnu},  {34, Dtype::kUint32},
      {35, Dtype::kUint64}};
  for (const auto& [known, dtype] : kTypes) {
    if (known == number) return dtype;
  }
  return {};
}

// Adds the tensors of one config to one group.
class Section {
 public:
  // `folder` contains the config and its records: "data/weights/".
  Section(const Archive& archive, std::string folder, bool is_big_endian, Reading& reading,
          Checkpoint& checkpoint)
      : archive_(archive),
        folder_(std::move(folder)),
        storages_(reading.budget, reading.sidecar, [](std::string_view) { return Record(); }),
        context_{.reading = reading, .storages = storages_, .is_big_endian = is_big_endian},
        checkpoint_(checkpoint) {}

  void Add(ExportedTensor exported, Group& group) {
    // Each tensor has its record and its device in its annotations, up to six bytes for one.
    context_.budget.Charge(2 * sizeof(Member) + exported.name.size() + exported.record.size() +
                           6 * exported.device.size());
    Content content = ContentOf(exported);
    group.members.push_back({{std::move(exported.name), Key::Kind::kText}, std::move(content)});
  }

 private:
  Content ContentOf(const ExportedTensor& exported) {
    Tensor tensor;
    try {
      const Record record = archive_.Require(folder_ + exported.record);
      if (exported.is_pickled) return Unpickled(record);
      Fill(exported, record, tensor);
      return tensor;
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      WarnOfUnreadable(exported.name, e, context_.budget, checkpoint_);
      return MakePlaceholder(std::move(tensor), e);
    }
  }

  // A tensor of a subclass, or an object.
  Content Unpickled(const Record& record) {
    Checkpoint saved = ReadSaved(record.data, context_.reading);
    for (std::string& warning : saved.warnings) {
      checkpoint_.warnings.push_back(std::move(warning));
    }
    if (saved.root.members.size() == 1) return std::move(saved.root.members.front().content);
    return std::make_unique<Group>(std::move(saved.root));
  }

  void Fill(const ExportedTensor& exported, const Record& record, Tensor& tensor) {
    const auto dtype = DtypeOfNumber(exported.dtype);
    if (!dtype) Fail(ENOTSUP, "unsupported type {}", exported.dtype);
    constexpr uint64_t kStrided = 7;
    if (exported.layout != kStrided) {
      Fail(ENOTSUP, "unsupported layout {} (expected {}, strided)", exported.layout, kStrided);
    }
    const Storage storage = {.record = record,
                             .type = {.dtype = *dtype},
                             .size = record.data.length,
                             .location = exported.device};
    const View view{.dtype = *dtype,
                    .shape = exported.sizes,
                    .stride = exported.strides,
                    .is_big_endian = context_.is_big_endian && SwapSize(*dtype) > 1};
    if (exported.is_parameter) {
      tensor.annotations.emplace_back("python_type", "\"torch.nn.parameter.Parameter\"");
    }
    if (exported.requires_grad) tensor.annotations.emplace_back("requires_grad", "true");
    if (exported.device != "cpu") {
      tensor.annotations.emplace_back("location", json::String(exported.device));
    }
    FillView(storage, exported.offset, view, context_, tensor);
  }

  const Archive& archive_;
  const std::string folder_;
  Storages storages_;  // Empty: records are found by their names.
  Context context_;
  Checkpoint& checkpoint_;
};

struct ExportPart {
  std::string_view folder;  // "data/weights/"
  std::string_view ending;  // Of the config, after the name of the model.
  std::string_view group;
};

constexpr ExportPart kParts[] = {{"data/weights/", "_weights_config.json", "state_dict"},
                                 {"data/constants/", "_constants_config.json", "constants"}};

// The names of the models, in the order of the archive.
std::vector<std::string> ModelsOf(const Archive& archive) {
  std::vector<std::string> models;
  const std::string folder = archive.prefix() + std::string(kParts[0].folder);
  for (const zip::Member& member : archive.members()) {
    if (!member.name.starts_with(folder) || !member.name.ends_with(kParts[0].ending)) continue;
    const std::string_view name = member.name.substr(folder.size());
    models.emplace_back(name.substr(0, name.size() - kParts[0].ending.size()));
  }
  return models;
}

}  // namespace

void AddExport(const Archive& archive, bool is_big_endian, Reading& reading,
               Checkpoint& checkpoint) {
  const std::vector<std::string> models = ModelsOf(archive);
  const bool is_compiled = AddCompiled(archive, is_big_endian, reading, checkpoint);
  if (models.empty() && !is_compiled)
    Fail(EBADMSG, "is an archive of torch.export without weights");
  for (const std::string& model : models) {
    Group* parent = &checkpoint.root;
    if (models.size() > 1) {
      auto group = std::make_unique<Group>();
      parent = group.get();
      checkpoint.root.members.push_back({{model, Key::Kind::kText}, std::move(group)});
    }
    for (const ExportPart& kind : kParts) {
      const std::string record = fmt::format("{}{}{}", kind.folder, model, kind.ending);
      if (archive.Find(record) == nullptr) continue;
      auto group = std::make_unique<Group>();
      Section section(archive, std::string(kind.folder), is_big_endian, reading, checkpoint);
      try {
        const Record opened = archive.Require(record);
        reading.budget.Grow(StoredSize(opened.data));
        reading.budget.Charge(opened.data.length);  // A small deflated record may be large.
        ReadExportConfig(opened.data, reading.budget, [&](ExportedTensor exported) {
          section.Add(std::move(exported), *group);
        });
      } catch (const Error& e) {
        throw WithContext(record, e);
      }
      parent->members.push_back({{std::string(kind.group), Key::Kind::kText}, std::move(group)});
    }
  }
  AddExtraFiles(archive, "extra/", reading, checkpoint);
}

void AddOldExport(const Archive& archive, Reading& reading, Checkpoint& checkpoint) {
  constexpr std::pair<std::string_view, std::string_view> kFiles[] = {
      {"serialized_state_dict.pt", "state_dict"}, {"serialized_constants.pt", "constants"}};
  for (const auto& [record, name] : kFiles) {
    if (archive.Find(record) == nullptr) continue;
    const Record opened = archive.Require(std::string(record));
    Checkpoint saved;
    try {
      saved = ReadSaved(opened.data, reading);
    } catch (const Error& e) {
      throw WithContext(record, e);
    }
    AddPart(std::move(saved), std::string(name), checkpoint.root, checkpoint);
  }
  AddExtraFiles(archive, "extra_files/", reading, checkpoint);
}

}  // namespace ckptfs::torch
