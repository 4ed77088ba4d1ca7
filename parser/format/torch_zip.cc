// PyTorch's zip container, what torch.save writes since 1.6 (and could write since 1.4):
//
//   folder/data.pkl    the object, one pickle, in which storages have persistent ids
//   folder/data/KEY    the bytes of the storage KEY
//   folder/byteorder   "little" or "big"; little where it is missing
//   folder/version     a number that says nothing about the layout
//
// TorchScript, torch.package and torch.export write archives of the same kind with other records.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "parser/codec/zip.h"
#include "parser/error.h"
#include "parser/format.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/archives.h"
#include "parser/format/torch/saved.h"
#include "parser/json.h"

namespace ckptfs {
namespace torch {
namespace {

void TellArchive(const Archive& archive, bool is_big_endian, Checkpoint& checkpoint) {
  checkpoint.notes.emplace_back("byteorder", is_big_endian ? "\"big\"" : "\"little\"");
  const std::string_view folder = archive.prefix();
  if (!folder.empty()) {
    checkpoint.notes.emplace_back("folder", json::String(folder.substr(0, folder.size() - 1)));
  }
  const auto strangers = std::ranges::count_if(archive.members(), [&](const zip::Member& member) {
    return !member.name.starts_with(folder);
  });
  if (strangers > 0) {
    checkpoint.warnings.push_back(fmt::format(
        "zip: {} members are not in the folder {} and left out", strangers, Quoted(folder)));
  }
}

}  // namespace

Checkpoint ReadZip(const Extent& data, Reading& reading) {
  const Archive archive(data, reading.budget, reading.options.verification);
  const bool is_big_endian = archive.IsBigEndian(reading.budget);
  Checkpoint checkpoint;
  TellArchive(archive, is_big_endian, checkpoint);
  switch (archive.kind()) {
    case Archive::Kind::kSaved:
      AddPickleOf(archive,
                  {.record = "data.pkl", .storages = "data/", .is_big_endian = is_big_endian},
                  reading, checkpoint);
      break;
    case Archive::Kind::kScript:
      AddScript(archive, is_big_endian, reading, checkpoint);
      break;
    case Archive::Kind::kPackage:
      AddPackage(archive, is_big_endian, reading, checkpoint);
      break;
    case Archive::Kind::kExport:
      AddExport(archive, is_big_endian, reading, checkpoint);
      break;
    case Archive::Kind::kOldExport:
      AddOldExport(archive, reading, checkpoint);
      break;
  }
  return checkpoint;
}

}  // namespace torch

namespace {

bool Matches(const Probe& probe) {
  constexpr std::string_view kLocalHeader = "PK\3\4";
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  return head.starts_with(kLocalHeader) || zip::HasEndRecord(probe.tail);
}

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  torch::Reading reading(source.file->size(), source, options);
  Checkpoint checkpoint = torch::ReadZip({source.file, 0, source.file->size()}, reading);
  reading.Tell(checkpoint);
  return checkpoint;
}

}  // namespace

extern const Format torch_zip_format{.name = "torch", .matches = Matches, .parse = Parse};

}  // namespace ckptfs
