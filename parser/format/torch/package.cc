// torch.package: the pickles that PackageExporter.save_pickle writes, each at the path of its
// package, beside source code and other resources. Storages are shared by all of them.
//
//   folder/models/net.pkl         a pickle
//   folder/.data/KEY.storage      the bytes of the storage KEY
//   folder/.data/extern_modules   the modules that it does not carry

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/format/torch/archives.h"

namespace ckptfs::torch {
namespace {

// Returns the group of the package at `path`, "models/" or "a/b/"; makes what is not there yet.
Group& PackageAt(Group& root, std::string_view path, Budget& budget) {
  Group* group = &root;
  while (!path.empty()) {
    const size_t length = path.find('/');
    const std::string_view name = path.substr(0, length);
    path.remove_prefix(length + 1);
    // The members of an archive are in order mostly: it is the last package.
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

}  // namespace

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
      if (e.code() == EFBIG || IsTransient(e.code())) throw;
      if (!damage) damage = e;
      checkpoint.warnings.push_back(fmt::format("{}: it is left out", e.what()));
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

}  // namespace ckptfs::torch
