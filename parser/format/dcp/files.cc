#include "parser/format/dcp/files.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "parser/base/error.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::dcp {
namespace {

constexpr size_t kMostFiles = 10'000;
constexpr size_t kMostName = 255;  // NAME_MAX.

// The size of a small file of torch.save without its data.
constexpr uint64_t kEndOfItem = 2048;  // Bytes.

// The nesting of objects is bounded, so this may recurse.
void SetMembers(Content& content, std::string_view file) {
  std::visit(Overloaded{[&](std::unique_ptr<Group>& group) {
                          if (group->table != nullptr) group->table->member = file;
                          for (Member& member : group->members) SetMembers(member.content, file);
                        },
                        [&](Tensor& tensor) { tensor.member = file; }, [](Value& /*value*/) {},
                        [&](Table& table) { table.member = file; }},
             content);
}

}  // namespace

Files::Files(const Folder& folder, const StringTable& names) : names_(names) {
  if (names.size() > kMostFiles) {
    Fail(EFBIG, "its parts are in {} files (maximum {})", names.size(), kMostFiles);
  }
  files_.resize(names.size());
  std::vector<std::string> plain;
  std::vector<size_t> numbers;  // Of these.
  for (size_t i = 0; i < files_.size(); ++i) {
    const std::string_view name = names.TextOf(static_cast<uint32_t>(i));
    File& file = files_[i];
    if (name.size() > kMostName || !IsPlainName(name)) {
      file.error.emplace(ENOENT, "invalid file name");
      continue;
    }
    plain.emplace_back(name);
    numbers.push_back(i);
  }
  std::vector<OpenedFile> opened = OpenDataFiles(folder, plain);
  for (size_t i = 0; i < opened.size(); ++i) {
    File& file = files_[numbers[i]];
    if (opened[i].error) {
      file.error.emplace(ENOENT, opened[i].error->what());
    } else {
      file.source = std::move(opened[i].file);
      if (__builtin_add_overflow(size_, file.source->size(), &size_)) {
        Fail(EOVERFLOW, "its files have more than 2^64 bytes");
      }
    }
  }
}

void Files::Prefetch(std::span<const Item> items) const {
  std::map<const ByteSource*, std::vector<ByteRange>> ranges;
  for (const Item& item : items) {
    for (const auto& place : item.places) {
      if (!place || place->file >= files_.size()) continue;
      const ByteSource* const source = files_[place->file].source.get();
      if (source == nullptr || !source->is_remote() || place->offset > source->size() ||
          place->length > source->size() - place->offset) {
        continue;
      }
      const uint64_t end = std::min(place->length, kEndOfItem);
      ranges[source].push_back({.offset = place->offset, .length = end});
      ranges[source].push_back({.offset = place->offset + place->length - end, .length = end});
    }
  }
  for (const auto& [source, its_ranges] : ranges) source->Prefetch(its_ranges);
}

Extent Files::At(const ChunkLocation& place) const {
  const File& file = files_[place.file];
  if (file.error) throw Error(*file.error);
  const uint64_t size = file.source->size();
  if (place.length == 0 || place.offset > size || place.length > size - place.offset) {
    Fail(EBADMSG, "should have {} bytes at byte {}, but the file ends at byte {}", place.length,
         place.offset, size);
  }
  return {file.source, place.offset, place.length};
}

// Items written by PyTorch never overlap. The limit lets each byte be read a few times, for writers
// that share items, but keeps a small file from having one item read a million times.
ItemReader::ItemReader(const Files& files, torch::Reading& reading)
    : files_(files), reading_(reading), bytes_left_(4 * std::min(files.size(), ~uint64_t{0} / 4)) {
  reading_.is_part = true;
}

Content ItemReader::Read(const ChunkLocation& place, std::vector<std::string>& warnings) {
  if (!place.transform.empty()) {
    Fail(ENOTSUP, "has the unsupported transform {}", Quoted(place.transform));
  }
  const Extent data = files_.At(place);
  if (data.length > bytes_left_) Fail(EBADMSG, "too many items overlap with others in their files");
  bytes_left_ -= data.length;
  Checkpoint checkpoint = torch::ReadSaved(data, reading_);
  std::ranges::move(checkpoint.warnings, std::back_inserter(warnings));
  std::vector<Member>& members = checkpoint.root.members;
  const bool is_alone = members.size() == 1 && members[0].key.text.empty();
  Content content = is_alone ? std::move(members[0].content)
                             : std::make_unique<Group>(std::move(checkpoint.root));
  SetMembers(content, files_.NameOf(place));
  return content;
}

}  // namespace ckptfs::dcp
