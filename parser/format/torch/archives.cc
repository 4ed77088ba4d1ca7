#include "parser/format/torch/archives.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "parser/format/torch/pickled.h"

namespace ckptfs::torch {

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

void AddPart(Checkpoint part, std::string name, Group& group, Checkpoint& checkpoint) {
  std::ranges::move(part.warnings, std::back_inserter(checkpoint.warnings));
  group.members.push_back(
      {{std::move(name), Key::Kind::kText}, std::make_unique<Group>(std::move(part.root))});
}

}  // namespace ckptfs::torch
