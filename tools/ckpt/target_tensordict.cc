#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/tensordict.h"
#include "parser/io/simple_sources.h"
#include "tools/ckpt/target.h"

namespace ckptfs::ckpt {

std::vector<PlannedFile> PlanTensorDict(Checkpoint& checkpoint, const std::string& folder) {
  for (Member& member : checkpoint.root.members) member.key.kind = Key::Kind::kText;
  LayoutOptions options;
  options.version = CKPTFS_VERSION;
  const Tree tree = LayOut(std::move(checkpoint), options);
  std::vector<PlannedFile> files;
  std::unordered_map<uint32_t, size_t> known;  // Files by inode.
  std::vector<std::pair<uint64_t, std::string>> folders = {{Tree::kRoot, folder}};
  while (!folders.empty()) {
    const auto [number, path] = std::move(folders.back());
    folders.pop_back();
    for (const ckptfs::Entry& entry : tree.Entries(*tree.Find(number))) {
      if (!entry.is_listed) continue;
      std::string name = path + "/" + std::string(entry.name);
      const Inode& inode = *tree.Find(entry.inode);
      if (inode.is_directory()) {
        folders.emplace_back(entry.inode, std::move(name));
        continue;
      }
      const auto [place, is_new] = known.emplace(entry.inode, files.size());
      if (!is_new) {
        files[place->second].links.push_back(std::move(name));
        continue;
      }
      files.push_back({.path = std::move(name), .links = {}, .segments = {}, .finish = nullptr});
      const Extent data{inode.source, inode.offset, inode.length};
      files.back().segments.push_back(
          {.offset = 0, .source = std::make_shared<Slice>(data), .crc = 0});
    }
  }
  return files;
}

}  // namespace ckptfs::ckpt
