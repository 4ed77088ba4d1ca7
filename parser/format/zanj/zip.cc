// An object that ZANJ saved:
//
//   __zanj__.json       the object: JSON, with tags where it is more than that (tag.h)
//   __zanj_meta__.json  about the writer; nothing in it is needed to read the rest
//   a/b.npy             an array of 256 elements or more, at obj["a"]["b"]
//   c.jsonl             a table, or a list of 256 items or more: an item in each line
//
// Both texts are what Python calls JSON. Names say where things are in the object, but keys may be
// anything, so only the references in the JSON are followed.

#include "parser/format/zanj/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/zanj/externals.h"
#include "parser/format/zanj/text.h"
#include "parser/format/zanj/tree.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::zanj {
namespace {

constexpr std::string_view kObject = "__zanj__.json";
constexpr std::string_view kMeta = "__zanj_meta__.json";
constexpr std::string_view kMetaKey = "__zanj_meta__";

// Members of the configuration that are the writer's own code and its documentation.
bool IsCode(std::string_view key) {
  return key == "serialization_handlers" || key == "load_handlers" || key == "handlers_desc";
}

// What the writer was told, without its code.
std::string ConfigurationOf(json::Node configuration, Externals& externals) {
  std::string text = "{";
  for (const auto& [key, value] : json::UniqueMembers(configuration, externals.budget())) {
    if (IsCode(key)) continue;
    if (text.size() > 1) text += ',';
    json::AppendString(text, key);
    text.append(":").append(ValueOf(value, externals).json);
  }
  return text += '}';
}

// Tells of the file as a whole what its metadata do: in brief among the annotations, in full as a table
// of one row, which no reader of tensors takes for a part of the object.
void AddMeta(Externals& externals, Checkpoint& checkpoint) try {
  if (externals.members().Find(kMeta) == nullptr) return;
  const json::Document document = externals.ReadValue(externals.Open(kMeta));
  const json::Node meta = document.root();
  const auto configuration = meta.Find("zanj_cfg");
  if (configuration && configuration->is_object()) {
    checkpoint.annotations.emplace_back("zanj_cfg", ConfigurationOf(*configuration, externals));
  }
  if (const auto time = meta.Find("timestamp")) {
    checkpoint.annotations.emplace_back("timestamp", ValueOf(*time, externals).json);
  }
  Table table{.data = {},
              .python_type = "dict",
              .error = "",
              .member = std::string(kMeta),
              .annotations = {}};
  std::string line = ValueOf(meta, externals).json + '\n';
  const uint64_t length = line.size();
  table.data = {std::make_shared<MemorySource>(std::move(line)), 0, length};
  checkpoint.root.members.push_back({{std::string(kMetaKey)}, std::move(table)});
} catch (const Error& e) {
  if (e.code() == EFBIG || IsTransient(e.code())) throw;
  checkpoint.warnings.push_back(fmt::format("{}: the metadata are left out", e.what()));
}

}  // namespace

bool IsZip(const Members& members) { return members.Find(kObject) != nullptr; }

Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& /*options*/) {
  // Most of them are read: arrays at their beginnings, and all of small tables.
  constexpr size_t kMostAtOnce = 512;
  constexpr uint64_t kHead = uint64_t{32} << 10U;  // Bytes.
  const auto list = members.list();
  members.PrefetchHeads(list.first(std::min(kMostAtOnce, list.size())), kHead);
  Externals externals(members, source.file->size());
  Checkpoint checkpoint;
  AddTree(externals.ReadValue(externals.Open(kObject)).root(), externals, checkpoint);
  AddMeta(externals, checkpoint);
  if (const size_t unused = externals.CountUnused(); unused > 0) {
    checkpoint.warnings.push_back(
        fmt::format("zip: {} members are not referred to and left out", unused));
  }
  return checkpoint;
}

}  // namespace ckptfs::zanj
