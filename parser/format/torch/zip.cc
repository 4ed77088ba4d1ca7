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
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/archives.h"
#include "parser/format/torch/saved.h"
#include "parser/format/torch/zip.h"

namespace ckptfs::torch {
namespace {

void TellArchive(const Archive& archive, bool is_big_endian, Checkpoint& checkpoint) {
  checkpoint.annotations.emplace_back("byteorder", is_big_endian ? "\"big\"" : "\"little\"");
  const std::string_view folder = archive.prefix();
  if (!folder.empty()) {
    checkpoint.annotations.emplace_back("folder",
                                        json::String(folder.substr(0, folder.size() - 1)));
  }
  const auto strangers = std::ranges::count_if(archive.members(), [&](const zip::Member& member) {
    return !member.name.starts_with(folder);
  });
  if (strangers > 0) {
    checkpoint.warnings.push_back(fmt::format(
        "zip: {} members are not in the folder {} and left out", strangers, Quoted(folder)));
  }
}

Checkpoint ReadMembers(Members members, Reading& reading) {
  const Archive archive(std::move(members));
  const bool is_big_endian = archive.IsBigEndian();
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

}  // namespace

Checkpoint ReadZip(const Extent& data, Reading& reading) {
  return ReadMembers({data, reading.budget, reading.options, reading.blocks}, reading);
}

Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options) {
  Reading reading(members.budget(), source, options);
  reading.blocks = members.blocks();
  Checkpoint checkpoint = ReadMembers(std::move(members), reading);
  reading.Tell(checkpoint);
  return checkpoint;
}

}  // namespace ckptfs::torch
