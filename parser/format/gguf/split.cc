// Models of llama.cpp in several files, each of which is complete in itself:
//
//   model-00001-of-00003.gguf, model-00002-of-00003.gguf, model-00003-of-00003.gguf
//
// Each part contains its number and the number of parts; the first one contains the metadata of the
// model. There is no index: any part stands for the whole model, and the names of the others are
// derived from its name, never from the contents of a file.
//
// The tensors of a missing part are unknown, but every part contains the number of all tensors, so
// the number of missing tensors is known. A missing part is shown as a value with its name.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory_resource>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/json.h"
#include "parser/base/part_name.h"
#include "parser/checkpoint.h"
#include "parser/format.h"
#include "parser/format/gguf/file.h"
#include "parser/format/gguf/header.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs::gguf {
namespace {

// Reads the parts of a model and merges them. Belongs to one thread.
class PartMerger {
 public:
  // `name` is the part that the user has named. `folder`, which has the files, and `budget` must
  // outlive this.
  PartMerger(const Folder& folder, PartName name, Budget& budget);

  // Call once. Reports a part that cannot be read as missing. Throws Error if no part can be
  // read, or if the parts do not belong to one model.
  Checkpoint Read();

 private:
  struct Part {
    uint32_t number = 0;  // From 1 on.
    std::string name;     // Of the file.
    ByteSourcePtr file;
    std::optional<GgufHeader> header;  // Reset after use.
    std::optional<Error> error;        // Why it cannot be read.
  };

  void OpenAll();
  void ReadHeaderOf(Part& part);
  void AddPart(Part& part);
  void CheckNumber(const Part& part) const;
  uint64_t AlignmentOf(const Part& part) const;
  void Merge(const Part& part, Checkpoint one);
  void AddShardAnnotations(Part& part, uint64_t alignment);
  void AddLost(const Part& part);
  void ReportLost();

  const Folder& folder_;
  const PartName name_;
  Budget& budget_;
  std::vector<Part> parts_;
  std::optional<uint32_t> first_alignment_;  // Of the first part, if it can be read.
  std::optional<uint64_t> total_;            // Tensors of the model.
  std::vector<size_t> lost_;                 // Parts, by their place in parts_.
  std::pmr::unordered_map<std::string, uint32_t, SecretHash, std::equal_to<>> names_;
  std::string shards_ = "{";  // A JSON object, with a comma at its end.
  Checkpoint merged_;
};

void CheckMagic(const ByteSource& file) {
  std::vector<std::byte> magic(std::min<uint64_t>(kMagic.size(), file.size()));
  file.ReadAt(0, magic);
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kMagic)))) {
    Fail(EBADMSG, "not a GGUF file");
  }
}

PartMerger::PartMerger(const Folder& folder, PartName name, Budget& budget)
    : folder_(folder), name_(std::move(name)), budget_(budget), names_(&budget) {}

Checkpoint PartMerger::Read() {
  OpenAll();
  Part& named = parts_[name_.number - 1];
  ReadHeaderOf(named);
  // A complete model may have such a name, too.
  if (named.header && !named.header->metadata.split.is_part()) {
    Checkpoint alone = ReadAlone(named.file, std::move(*named.header), budget_);
    alone.format = "gguf";
    return alone;
  }
  for (Part& part : parts_) AddPart(part);
  if (lost_.size() == parts_.size()) {
    throw WithContext(fmt::format("cannot read any of the {} files", parts_.size()), *named.error);
  }
  ReportLost();
  shards_.back() = '}';
  merged_.annotations.emplace_back("shards", std::move(shards_));
  return std::move(merged_);
}

void PartMerger::OpenAll() {
  std::vector<std::string> names;
  for (uint32_t number = 1; number <= name_.count; ++number) names.push_back(name_.Of(number));
  std::vector<OpenedFile> opened = OpenFiles(folder_, names);
  for (size_t i = 0; i < names.size(); ++i) {
    Part& part = parts_.emplace_back();
    part.number = static_cast<uint32_t>(i + 1);
    part.name = std::move(names[i]);
    part.file = std::move(opened[i].file);
    if (opened[i].error) part.error = WithContext(part.name, *opened[i].error);
  }
  budget_.Charge(parts_.size() * (sizeof(Part) + parts_.front().name.size()));
}

void PartMerger::ReadHeaderOf(Part& part) {
  if (part.error || part.header) return;
  try {
    CheckMagic(*part.file);
    part.header = ReadHeader(*part.file, budget_);
  } catch (const Error& e) {
    if (IsFatal(e)) throw WithContext(part.name, e);
    part.error = WithContext(part.name, e);
  }
}

void PartMerger::AddPart(Part& part) {
  ReadHeaderOf(part);
  if (part.error) return AddLost(part);
  Checkpoint one;
  uint64_t alignment = 0;
  try {
    CheckNumber(part);
    alignment = AlignmentOf(part);
    AddTensors(part.file, *part.header, alignment, budget_, one);
  } catch (const Error& e) {
    if (IsFatal(e)) throw WithContext(part.name, e);
    part.error = WithContext(part.name, e);
    return AddLost(part);
  }
  if (part.number == 1) first_alignment_ = static_cast<uint32_t>(alignment);
  if (!total_) total_ = part.header->metadata.split.tensors;
  Merge(part, std::move(one));
  AddShardAnnotations(part, alignment);
}

// Throws Error if the number in the file differs from that in its name.
void PartMerger::CheckNumber(const Part& part) const {
  const Split& split = part.header->metadata.split;
  if (!split.is_part()) Fail(EBADMSG, "not marked as a part of a model");
  if (split.number != part.number - 1 || *split.count != name_.count) {
    Fail(EBADMSG, "has split.no {} of {} (expected {} of {} by its name)",
         split.number ? std::to_string(*split.number) : "nothing", *split.count, part.number - 1,
         name_.count);
  }
}

// gguf-py applies the alignment in the first part to all parts; other programs apply it only to
// parts that contain it. The length of the file distinguishes the two layouts.
uint64_t PartMerger::AlignmentOf(const Part& part) const {
  const GgufHeader& header = *part.header;
  if (header.metadata.alignment) return *header.metadata.alignment;
  const uint64_t size = part.file->size();
  if (!first_alignment_) CheckAlignment(header, size);
  const uint64_t other = first_alignment_.value_or(kUsualAlignment);
  const bool is_other = EndOf(header, kUsualAlignment) != size && EndOf(header, other) == size;
  return is_other ? other : kUsualAlignment;
}

void PartMerger::Merge(const Part& part, Checkpoint one) {
  const std::string file = json::String(part.name);
  for (Member& member : one.root.members) {
    budget_.Charge(2 * (sizeof(Annotation) + file.size()) + member.key.text.size());
    const auto [known, is_new] = names_.emplace(member.key.text, part.number);
    if (!is_new) {
      Fail(EBADMSG, "tensor {}: is in {} and in {}", Quoted(member.key.text),
           name_.Of(known->second), part.name);
    }
    AnnotationsOf(member.content).emplace_back("file", file);
    merged_.root.members.push_back(std::move(member));
  }
  for (const std::string& warning : one.warnings) {
    budget_.Charge(warning.size() + part.name.size());
    merged_.warnings.push_back(fmt::format("{}: {}", part.name, warning));
  }
}

// The metadata of the first part is that of the model; other parts have little more than numbers.
void PartMerger::AddShardAnnotations(Part& part, uint64_t alignment) {
  const bool has_alignment = part.header->metadata.alignment.has_value();
  std::vector<Annotation> annotations;
  AddAnnotations(std::move(*part.header), alignment, annotations);
  part.header.reset();
  if (part.number == 1) {
    merged_.annotations = std::move(annotations);
    return;
  }
  if (!has_alignment && alignment != kUsualAlignment) {
    annotations.emplace_back("alignment_from", json::String(name_.Of(1)));
  }
  json::AppendString(shards_, part.name);
  shards_.append(":").append(json::Object(annotations)) += ',';
}

void PartMerger::AddLost(const Part& part) {
  const std::string error = json::String(part.error->what());
  budget_.Charge(2 * sizeof(Member) + 8 * error.size());
  Value value{.json = fmt::format(R"({{"error":{}}})", error),
              .python_type = "",
              .error = *part.error,
              .annotations = {}};
  merged_.root.members.push_back({{part.name, Key::Kind::kOther}, std::move(value)});
  lost_.push_back(part.number - 1);
  json::AppendString(shards_, part.name);
  shards_.append(":{\"error\":").append(error) += "},";
}

void PartMerger::ReportLost() {
  const uint64_t found = names_.size();
  if (lost_.empty()) {
    if (total_.value_or(found) == found) return;
    Fail(EBADMSG, "its {} parts have {} tensors (expected {} by split.tensors.count)",
         parts_.size(), found, *total_);
  }
  const uint64_t count = total_ && *total_ > found ? *total_ - found : 0;
  std::vector<std::string> warnings;
  std::string files = "[";
  for (const size_t i : lost_) {
    const Part& part = parts_[i];
    warnings.push_back(fmt::format("{}: its tensors are missing", part.error->what()));
    json::AppendString(files, part.name);
    files += ',';
  }
  if (count > 0) {
    warnings.front() += fmt::format(" ({} of {} tensors{})", count, *total_,
                                    lost_.size() == 1 ? "" : " in all missing files");
    merged_.annotations.emplace_back("lost_tensors", std::to_string(count));
  }
  files.back() = ']';
  merged_.annotations.emplace_back("lost", std::move(files));
  merged_.warnings.insert(merged_.warnings.begin(), std::make_move_iterator(warnings.begin()),
                          std::make_move_iterator(warnings.end()));
}

// Other files may lie beside the parts, except another model.
std::string Find(const Folder& /*folder*/, std::span<const std::string> files) {
  std::vector<std::string> models;  // One file of each.
  std::set<std::string> known;
  bool has_parts = false;
  for (const std::string& file : files) {
    if (file.starts_with('.') || !file.ends_with(".gguf")) continue;
    const auto name = ParsePartName(file);
    has_parts = has_parts || name;
    if (known.insert(name ? name->Of(1) : file).second) models.push_back(file);
  }
  if (!has_parts) return {};
  if (models.size() > 1) {
    Fail(ENOTUNIQ, "directory with {} models, {}: name the one to mount", models.size(),
         Listed(models));
  }
  return models.front();
}

bool IsIndex(std::string_view file, const Probe& probe) {
  return probe.head.size() >= kMagic.size() &&
         std::ranges::equal(probe.head.first(kMagic.size()), std::as_bytes(std::span(kMagic))) &&
         ParsePartName(file);
}

Checkpoint Parse(const Folder& folder, const std::string& index, const ReadOptions& options) {
  return PartMerger(folder, *ParsePartName(index), *options.budget).Read();
}

}  // namespace
}  // namespace ckptfs::gguf

namespace ckptfs {

extern const FolderFormat gguf_split_format{
    .name = "gguf_split", .find = gguf::Find, .is_index = gguf::IsIndex, .parse = gguf::Parse};

}  // namespace ckptfs
