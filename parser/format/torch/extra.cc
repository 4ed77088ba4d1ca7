// The files that a caller of torch.jit.save (_extra_files) or torch.export.save (extra_files) has
// put into the archive beside the model: names of classes, symbols, cutoffs.

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/format/archive/plain_file.h"
#include "parser/format/torch/archives.h"

namespace ckptfs::torch {

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
      if (e.code() == EFBIG || IsTransient(e.code())) throw;
      checkpoint.warnings.push_back(fmt::format("{}: it is left out", e.what()));
      continue;
    }
    group->members.push_back({{name, Key::Kind::kWhole}, std::move(content)});
  }
  if (group->members.empty()) return;
  checkpoint.root.members.push_back({{"extra", Key::Kind::kText}, std::move(group)});
}

}  // namespace ckptfs::torch
