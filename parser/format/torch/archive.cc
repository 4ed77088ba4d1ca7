#include "parser/format/torch/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/archive/record.h"
#include "parser/format/torch/export.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::torch {
namespace {

// A record of an archive that has one folder, by its name.
bool IsRecord(const zip::Member& member, std::string_view record) {
  return member.name.ends_with(record) &&
         member.name.find('/') == member.name.size() - record.size();
}

// Whether the members are those of a torch.save that failed.
bool HasVersion(const Members& members) {
  constexpr size_t kMost = 4;
  return members.list().size() <= kMost &&
         std::ranges::any_of(members.list(), [](const zip::Member& member) {
           return IsRecord(member, "/version");
         });
}

constexpr std::string_view kPickle = "/data.pkl";
constexpr std::string_view kOldExport = "serialized_state_dict.pt";
constexpr std::pair<std::string_view, Archive::Kind> kMarks[] = {
    {"/archive_format", Archive::Kind::kExport},
    {"/.data/extern_modules", Archive::Kind::kPackage}};

}  // namespace

bool IsZip(const Members& members) {
  return HasVersion(members) || members.Find(kOldExport) != nullptr ||
         std::ranges::any_of(members.list(), [](const zip::Member& member) {
           return IsRecord(member, kPickle) || IsRecord(member, kMarks[0].first) ||
                  IsRecord(member, kMarks[1].first);
         });
}

Archive::Archive(Members members) : members_(std::move(members)) {
  try {
    members_.directory().CheckPaths();
  } catch (const Error& e) {
    throw WithContext("zip", e);
  }
  if (FindPickle()) {
    const zip::Member* constants = Find("constants.pkl");
    if (constants != nullptr) kind_ = Kind::kScript;
    const zip::Member* const whole[] = {Find("data.pkl"), Find("byteorder"), constants};
    members_.Prefetch(whole);
  } else {
    FindKind();
  }
}

// The folder is the prefix of data.pkl. PyTorch uses the folder of the first member, and cannot
// read the file if that is another one.
bool Archive::FindPickle() {
  const auto is_pickle = [](const zip::Member& member) { return IsRecord(member, kPickle); };
  const auto pickles = std::ranges::count_if(members(), is_pickle);
  if (pickles > 1) {
    Fail(EBADMSG, "has {} members data.pkl in different folders: ambiguous", pickles);
  }
  if (pickles == 0) return false;
  const auto found = std::ranges::find_if(members(), is_pickle);
  prefix_ = found->name.substr(0, found->name.find('/') + 1);
  return true;
}

// An archive without data.pkl was not written by torch.save.
void Archive::FindKind() {
  for (const auto& mark : kMarks) {
    const std::string_view record = mark.first;
    const auto found = std::ranges::find_if(
        members(), [&](const zip::Member& member) { return IsRecord(member, record); });
    if (found == members().end()) continue;
    prefix_ = found->name.substr(0, found->name.size() - record.size() + 1);
    kind_ = mark.second;
    return;
  }
  if (Find(kOldExport) != nullptr) {
    kind_ = Kind::kOldExport;
    return;
  }
  if (HasVersion(members_)) {
    Fail(EBADMSG, "data.pkl not found: the torch.save that wrote the file failed");
  }
  Fail(ENOTSUP, "is a zip archive with {} members, but without data.pkl: not a PyTorch checkpoint",
       members().size());
}

Record Archive::Open(const std::string& record) const {
  if (const zip::Member* member = Find(record)) return members_.Open(*member, record);
  return {.data = {},
          .member = record,
          .is_in_file = false,
          .error = Error(EBADMSG, fmt::format("member {} not found in the archive",
                                              Quoted(prefix_ + record)))};
}

Record Archive::Require(const std::string& record) const {
  Record opened = Open(record);
  opened.Check();
  return opened;
}

std::vector<std::byte> Archive::Read(const std::string& record) const {
  return members_.Read(Open(record));
}

bool Archive::IsBigEndian() const {
  const zip::Member* member = Find("byteorder");
  if (member == nullptr) return false;
  constexpr size_t kMost = 16;  // The two valid texts have 6 and 3 bytes.
  const auto bytes = member->size > kMost ? std::vector<std::byte>() : Read("byteorder");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text != "little" && text != "big") {
    Fail(EBADMSG, "invalid byteorder (found {}, expected 'little' or 'big')", Quoted(text));
  }
  return text == "big";
}

namespace {

// The record of a pickle, and those of its storages: `storages` KEY `suffix`.
struct PickleOfArchive {
  std::string record;
  std::string_view storages;
  std::string_view suffix = {};
  bool is_big_endian = false;
};

// Adds the objects of one pickle to the root, the annotations and the warnings of `checkpoint`.
// Throws Error.
void AddPickleOf(const Archive& archive, const PickleOfArchive& which, Reading& reading,
                 Checkpoint& checkpoint) {
  const std::vector<std::byte> bytes = archive.Read(which.record);
  Storages storages(reading.budget, reading.sidecar, [&](std::string_view key) {
    return archive.Open(fmt::format("{}{}{}", which.storages, key, which.suffix));
  });
  Context context{.reading = reading,
                  .storages = storages,
                  .is_big_endian = which.is_big_endian,
                  .pickle = bytes,
                  .pickle_record = archive.Open(which.record)};
  AddPickle(which.record, context, checkpoint);
}

}  // namespace

void AddPart(Checkpoint part, std::string name, Group& group, Checkpoint& checkpoint) {
  std::ranges::move(part.warnings, std::back_inserter(checkpoint.warnings));
  group.members.push_back(
      {{std::move(name), Key::Kind::kText}, std::make_unique<Group>(std::move(part.root))});
}

namespace {

// TorchScript, written by torch.jit.save. data.pkl has the module as an object of a class
// "__torch__...", whose attributes are its parameters, buffers, submodules and everything else;
// constants.pkl is a tuple of the tensors that the code mentions. Each has its own storages, with
// keys from 0 on. The code is not read.

void AddScript(const Archive& archive, bool is_big_endian, Reading& reading,
               Checkpoint& checkpoint) {
  AddPickleOf(archive, {.record = "data.pkl", .storages = "data/", .is_big_endian = is_big_endian},
              reading, checkpoint);
  Checkpoint constants;
  AddPickleOf(archive,
              {.record = "constants.pkl", .storages = "constants/", .is_big_endian = is_big_endian},
              reading, constants);
  if (!constants.root.members.empty()) {
    AddPart(std::move(constants), "constants", checkpoint.root, checkpoint);
  }
  AddExtraFiles(archive, "extra/", reading, checkpoint);
}

// torch.package: the pickles that PackageExporter.save_pickle writes, each at the path of its
// package, beside source code and other resources. Storages are shared by all of them.
//
//   folder/models/net.pkl         a pickle
//   folder/.data/KEY.storage      the bytes of the storage KEY
//   folder/.data/extern_modules   the modules that it does not carry

// Returns the group of the package at `path`, "models/" or "a/b/"; creates missing ones.
Group& PackageAt(Group& root, std::string_view path, Budget& budget) {
  Group* group = &root;
  while (!path.empty()) {
    const size_t length = path.find('/');
    const std::string_view name = path.substr(0, length);
    path.remove_prefix(length + 1);
    // Archives are usually in order, so the package is the last one.
    Group* below = nullptr;
    if (!group->members.empty() && group->members.back().key.text == name) {
      auto* last = std::get_if<std::unique_ptr<Group>>(&group->members.back().content);
      if (last != nullptr && (*last)->python_type == "package") below = last->get();
    }
    if (below == nullptr) {
      budget.Charge(2 * sizeof(Member) + sizeof(Group) + name.size());
      auto made = std::make_unique<Group>();
      made->python_type = "package";
      below = made.get();
      group->members.push_back({{std::string(name), Key::Kind::kText}, std::move(made)});
    }
    group = below;
  }
  return *group;
}

void AddPackage(const Archive& archive, bool is_big_endian, Reading& reading,
                Checkpoint& checkpoint) {
  constexpr std::string_view kEnding = ".pkl";
  size_t read = 0;
  std::optional<Error> damage;
  for (const zip::Member& member : archive.members()) {
    if (!member.name.starts_with(archive.prefix()) || !member.name.ends_with(kEnding)) continue;
    const std::string record(member.name.substr(archive.prefix().size()));
    const size_t name = record.rfind('/') + 1;
    Checkpoint one;
    try {
      AddPickleOf(archive,
                  {.record = record,
                   .storages = ".data/",
                   .suffix = ".storage",
                   .is_big_endian = is_big_endian},
                  reading, one);
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      if (!damage) damage = e;
      checkpoint.warnings.push_back(fmt::format("{}: ignored", e.what()));
      continue;
    }
    ++read;
    Group& package =
        PackageAt(checkpoint.root, std::string_view(record).substr(0, name), reading.budget);
    AddPart(std::move(one), record.substr(name, record.size() - name - kEnding.size()), package,
            checkpoint);
  }
  if (read == 0 && damage) throw Error(damage->code(), damage->what());
}

}  // namespace

// Files that a caller of torch.jit.save (_extra_files) or torch.export.save (extra_files) adds to
// the archive: names of classes, symbols, thresholds.

void AddExtraFiles(const Archive& archive, std::string_view folder, Reading& reading,
                   Checkpoint& checkpoint) {
  const std::string prefix = archive.prefix() + std::string(folder);
  auto group = std::make_unique<Group>();
  for (const zip::Member& member : archive.members()) {
    if (!member.name.starts_with(prefix) || member.name.size() == prefix.size()) continue;
    const std::string record(member.name.substr(archive.prefix().size()));
    const std::string name = record.substr(folder.size());
    Content content;
    try {
      content = ContentOfFile(archive.Require(record), reading.budget);
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      checkpoint.warnings.push_back(fmt::format("{}: ignored", e.what()));
      continue;
    }
    group->members.push_back({{name, Key::Kind::kWhole}, std::move(content)});
  }
  if (group->members.empty()) return;
  checkpoint.root.members.push_back({{"extra", Key::Kind::kText}, std::move(group)});
}

// PyTorch's zip container, which torch.save writes since 1.6 (optionally since 1.4):
//
//   folder/data.pkl    the object, one pickle, in which storages have persistent ids
//   folder/data/KEY    the bytes of the storage KEY
//   folder/byteorder   "little" or "big"; little where it is missing
//   folder/version     a number, independent of the layout
//
// TorchScript, torch.package and torch.export write archives of the same kind with other records.

namespace {

void RecordArchive(const Archive& archive, bool is_big_endian, Checkpoint& checkpoint) {
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
        "zip: {} members are not in the folder {} and are ignored", strangers, Quoted(folder)));
  }
}

Checkpoint ReadMembers(Members members, Reading& reading) {
  const Archive archive(std::move(members));
  const bool is_big_endian = archive.IsBigEndian();
  Checkpoint checkpoint;
  RecordArchive(archive, is_big_endian, checkpoint);
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
  reading.Report(checkpoint);
  return checkpoint;
}

}  // namespace ckptfs::torch
