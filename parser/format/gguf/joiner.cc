#include "parser/format/gguf/joiner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "parser/annotations.h"
#include "parser/base/json.h"
#include "parser/format/common/open_files.h"
#include "parser/format/gguf/file.h"
#include "parser/format/gguf/layout.h"

namespace ckptfs::gguf {
namespace {

void CheckMagic(const ByteSource& file) {
  std::vector<std::byte> magic(std::min<uint64_t>(kMagic.size(), file.size()));
  file.ReadAt(0, magic);
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kMagic)))) {
    Fail(EBADMSG, "is no gguf file");
  }
}

}  // namespace

Joiner::Joiner(const Folder& folder, PartName name, Budget& budget)
    : folder_(folder), name_(std::move(name)), budget_(budget), names_(&budget) {}

Checkpoint Joiner::Read() {
  OpenAll();
  Part& named = parts_[name_.number - 1];
  ReadHeaderOf(named);
  // Anybody may give a whole model such a name.
  if (named.header && !named.header->metadata.split.is_part()) {
    Checkpoint alone = ReadAlone(named.file, std::move(*named.header), budget_);
    alone.format = "gguf";
    return alone;
  }
  for (Part& part : parts_) AddPart(part);
  if (lost_.size() == parts_.size()) {
    throw WithContext(fmt::format("none of its {} files can be read", parts_.size()), *named.error);
  }
  TellLost();
  shards_.back() = '}';
  merged_.annotations.emplace_back("shards", std::move(shards_));
  return std::move(merged_);
}

void Joiner::OpenAll() {
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

void Joiner::ReadHeaderOf(Part& part) {
  if (part.error || part.header) return;
  try {
    CheckMagic(*part.file);
    part.header = ReadHeader(*part.file, budget_);
  } catch (const Error& e) {
    if (IsTransient(e.code()) || e.code() == EFBIG) throw WithContext(part.name, e);
    part.error = WithContext(part.name, e);
  }
}

void Joiner::AddPart(Part& part) {
  ReadHeaderOf(part);
  if (part.error) return AddLost(part);
  Checkpoint one;
  uint64_t alignment = 0;
  try {
    CheckNumber(part);
    alignment = AlignmentOf(part);
    AddTensors(part.file, *part.header, alignment, budget_, one);
  } catch (const Error& e) {
    if (IsTransient(e.code()) || e.code() == EFBIG) throw WithContext(part.name, e);
    part.error = WithContext(part.name, e);
    return AddLost(part);
  }
  if (part.number == 1) first_alignment_ = static_cast<uint32_t>(alignment);
  if (!total_) total_ = part.header->metadata.split.tensors;
  Merge(part, std::move(one));
  TellShard(part, alignment);
}

// Throws Error if the file is not the part that its name says.
void Joiner::CheckNumber(const Part& part) const {
  const Split& split = part.header->metadata.split;
  if (!split.is_part()) Fail(EBADMSG, "does not say that it is a part of a model");
  if (split.number != part.number - 1 || *split.count != name_.count) {
    Fail(EBADMSG, "says split.no {} of {}, but its name needs {} of {}",
         split.number ? std::to_string(*split.number) : "nothing", *split.count, part.number - 1,
         name_.count);
  }
}

// gguf-py lays out all parts with the alignment that the first one alone tells, other programs only
// those that tell it. The length of the file shows who has written it.
uint64_t Joiner::AlignmentOf(const Part& part) const {
  const Header& header = *part.header;
  if (header.metadata.alignment) return *header.metadata.alignment;
  const uint64_t size = part.file->size();
  if (!first_alignment_) CheckAlignment(header, size);
  const uint64_t other = first_alignment_.value_or(kUsualAlignment);
  const bool is_other = EndOf(header, kUsualAlignment) != size && EndOf(header, other) == size;
  return is_other ? other : kUsualAlignment;
}

void Joiner::Merge(const Part& part, Checkpoint one) {
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

// The metadata of the first part is that of the model; the others have little more than numbers.
void Joiner::TellShard(Part& part, uint64_t alignment) {
  const bool is_told = part.header->metadata.alignment.has_value();
  std::vector<Annotation> annotations;
  AddAnnotations(std::move(*part.header), alignment, annotations);
  part.header.reset();
  if (part.number == 1) {
    merged_.annotations = std::move(annotations);
    return;
  }
  if (!is_told && alignment != kUsualAlignment) {
    annotations.emplace_back("alignment_from", json::String(name_.Of(1)));
  }
  json::AppendString(shards_, part.name);
  shards_.append(":").append(json::Object(annotations)) += ',';
}

void Joiner::AddLost(const Part& part) {
  const std::string error = json::String(part.error->what());
  budget_.Charge(2 * sizeof(Member) + 8 * error.size());
  Value value{
      .json = fmt::format(R"({{"error":{}}})", error), .python_type = "", .annotations = {}};
  value.annotations.emplace_back("error", error);
  merged_.root.members.push_back({{part.name, Key::Kind::kOther}, std::move(value)});
  lost_.push_back(part.number - 1);
  json::AppendString(shards_, part.name);
  shards_.append(":{\"error\":").append(error) += "},";
}

void Joiner::TellLost() {
  const uint64_t found = names_.size();
  if (lost_.empty()) {
    if (total_.value_or(found) == found) return;
    Fail(EBADMSG, "its {} parts have {} tensors, but split.tensors.count says {}", parts_.size(),
         found, *total_);
  }
  const uint64_t count = total_ && *total_ > found ? *total_ - found : 0;
  std::vector<std::string> told;
  std::string files = "[";
  for (const size_t i : lost_) {
    const Part& part = parts_[i];
    told.push_back(fmt::format("{}: what it has is lost", part.error->what()));
    json::AppendString(files, part.name);
    files += ',';
  }
  if (count > 0) {
    told.front() += fmt::format(" ({} of {} tensors{})", count, *total_,
                                lost_.size() == 1 ? "" : " with all that is lost");
    merged_.annotations.emplace_back("lost_tensors", std::to_string(count));
  }
  files.back() = ']';
  merged_.annotations.emplace_back("lost", std::move(files));
  merged_.warnings.insert(merged_.warnings.begin(), std::make_move_iterator(told.begin()),
                          std::make_move_iterator(told.end()));
}

}  // namespace ckptfs::gguf
