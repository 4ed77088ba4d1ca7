#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/io/folder.h"
#include "parser/view/view.h"
#include "tools/ckpt/statistics.h"
#include "tools/ckpt/target.h"

namespace ckptfs::ckpt {
namespace {

PlannedFile PlanOne(const Checkpoint& checkpoint, std::string path) {
  Budget budget;
  SafetensorsView view = MakeSafetensorsView(checkpoint, budget);
  if (!view.left_out.empty()) {
    for (const Member& member : checkpoint.root.members) {
      const auto* const tensor = std::get_if<Tensor>(&member.content);
      if (tensor == nullptr || member.key.text != view.left_out.front()) continue;
      if (tensor->quantizer || !HasNumbers(*tensor)) {
        FailDtype("safetensors", member.key.text, *tensor);
      }
    }
    Fail(ENOTSUP, "{}: safetensors cannot have {}", path, Listed(view.left_out));
  }
  if (view.file == nullptr) {
    Fail(EFBIG, "{}: the header would exceed the 100 MB of the format", path);
  }
  return {.path = std::move(path),
          .links = {},
          .segments = {{.offset = 0, .source = std::move(view.file), .crc = 0}},
          .finish = nullptr};
}

// Moves the members of `checkpoint` to checkpoints of at most `most` bytes each. Values are in the
// first one.
std::vector<Checkpoint> ShardsOf(Checkpoint& checkpoint, uint64_t most) {
  std::vector<Checkpoint> shards(1);
  uint64_t size = 0;
  for (Member& member : checkpoint.root.members) {
    const auto* const tensor = std::get_if<Tensor>(&member.content);
    const uint64_t length = tensor == nullptr ? 0 : tensor->data.length;
    if (size > 0 && length > most - std::min(most, size)) {
      shards.emplace_back();
      size = 0;
    }
    size += length;
    Group& root = tensor == nullptr ? shards.front().root : shards.back().root;
    root.members.push_back(std::move(member));
  }
  return shards;
}

}  // namespace

std::vector<PlannedFile> PlanSafetensors(Checkpoint& checkpoint, const std::string& path,
                                         uint64_t shard) {
  std::vector<PlannedFile> files;
  if (shard == 0) {
    files.push_back(PlanOne(checkpoint, path));
    return files;
  }
  const std::vector<Checkpoint> shards = ShardsOf(checkpoint, shard);
  if (shards.size() == 1) {
    files.push_back(PlanOne(shards.front(), path));
    return files;
  }
  constexpr std::string_view kSuffix = ".safetensors";
  std::string_view stem = path;
  if (stem.ends_with(kSuffix)) stem.remove_suffix(kSuffix.size());
  uint64_t total = 0;
  std::string map;
  for (size_t i = 0; i < shards.size(); ++i) {
    files.push_back(PlanOne(
        shards[i], fmt::format("{}-{:05}-of-{:05}{}", stem, i + 1, shards.size(), kSuffix)));
    const std::string name = std::filesystem::path(files.back().path).filename().string();
    for (const Member& member : shards[i].root.members) {
      const auto* const tensor = std::get_if<Tensor>(&member.content);
      if (tensor == nullptr) continue;
      total += tensor->data.length;
      map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",", json::String(member.key.text),
                         json::String(name));
    }
  }
  const std::string index = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{{}\n  }}\n}}\n",
      total, map);
  files.push_back({.path = fmt::format("{}{}.index.json", stem, kSuffix),
                   .links = {},
                   .segments = {SegmentOf(0, index)},
                   .finish = nullptr});
  return files;
}

}  // namespace ckptfs::ckpt
