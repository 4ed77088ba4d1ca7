// Models of llama.cpp in several files, each of which is complete in itself:
//
//   model-00001-of-00003.gguf, model-00002-of-00003.gguf, model-00003-of-00003.gguf
//
// Each tells its number and how many there are, and the first one has the metadata of the model.
// There is no index: whichever part a user names stands for all of them, and the names of the
// others follow from its own. No name of a file comes from inside of one.
//
// Which tensors a part had, nobody knows when it is missing. All parts tell how many there are in
// all, so how many are lost is known. The lost part is shown as a value under its name.

#include <algorithm>
#include <cerrno>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/format.h"
#include "parser/format/gguf/header.h"
#include "parser/format/gguf/joiner.h"
#include "parser/format/gguf/parts.h"
#include "parser/io/folder.h"

namespace ckptfs {
namespace gguf {
namespace {

// A model in parts may lie beside anything but another model.
std::string Find(const Folder& /*folder*/, std::span<const std::string> files) {
  std::vector<std::string> models;  // One file of each.
  std::set<std::string> known;
  bool has_parts = false;
  for (const std::string& file : files) {
    if (file.starts_with('.') || !file.ends_with(".gguf")) continue;
    const auto name = ReadPartName(file);
    has_parts = has_parts || name;
    if (known.insert(name ? name->Of(1) : file).second) models.push_back(file);
  }
  if (!has_parts) return {};
  if (models.size() > 1) {
    Fail(ENOTSUP, "is a directory with {} models, {}: name the one to mount", models.size(),
         Listed(models));
  }
  return models.front();
}

bool IsIndex(std::string_view file, const Probe& probe) {
  return probe.head.size() >= kMagic.size() &&
         std::ranges::equal(probe.head.first(kMagic.size()), std::as_bytes(std::span(kMagic))) &&
         ReadPartName(file);
}

Checkpoint Parse(const Folder& folder, const std::string& index, const ReadOptions& options) {
  return Joiner(folder, *ReadPartName(index), *options.budget).Read();
}

}  // namespace
}  // namespace gguf

extern const FolderFormat gguf_split_format{
    .name = "gguf_split", .find = gguf::Find, .is_index = gguf::IsIndex, .parse = gguf::Parse};

}  // namespace ckptfs
