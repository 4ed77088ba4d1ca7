// The directories that tensordict saves (https://github.com/pytorch/tensordict): TensorDict.memmap,
// and save. See tensordict/tree.h.
//
// A mount has the same layout, so that load_memmap returns the same object from it as from the
// original directory: with its classes, batch sizes and values. Data that it could not load
// (pickles, types that tensordict can save but not load) are shown in another form.

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/format.h"
#include "parser/format/tensordict/directory.h"
#include "parser/format/tensordict/tree.h"

namespace ckptfs {
namespace tensordict {
namespace {

constexpr std::string_view kMark = "\"_type\"";

// Whether `text` contains a member _type whose value begins like a class.
bool HasMark(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  for (size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at + 1)) {
    std::string_view rest = text.substr(at + kMark.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlank), rest.size()));
    if (!rest.starts_with(':')) continue;
    rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlank), rest.size()));
    if (rest.starts_with("\"<class '")) return true;
  }
  return false;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Whether `file` contains the mark. Many other tools write a meta.json, too.
bool IsMeta(const ByteSource& file) {
  constexpr size_t kOverlap = 256;  // Bytes; the mark takes fewer.
  constexpr uint64_t kMost = uint64_t{1} << 27;
  const uint64_t size = std::min(file.size(), kMost);
  std::vector<std::byte> block(size_t{1} << 18);
  for (uint64_t begin = 0; begin < size; begin += block.size() - kOverlap) {
    const auto part = std::span(block).first(std::min<uint64_t>(block.size(), size - begin));
    file.ReadAt(begin, part);
    if (begin == 0 && !TextOf(part).starts_with('{')) return false;
    if (HasMark(TextOf(part))) return true;
  }
  return false;
}

bool Has(std::span<const std::string> files, std::string_view name) {
  return std::ranges::binary_search(files, name);
}

std::string Find(const Folder& folder, std::span<const std::string> files) {
  if (Has(files, kMetaName)) return IsMeta(*folder.Open(kMetaName)) ? kMetaName : "";
  const bool has_tensors =
      std::ranges::any_of(files, [](const std::string& name) { return name.ends_with(".memmap"); });
  if (Has(files, "meta.pt") && has_tensors) {
    Fail(ENOTSUP,
         "is a TensorDict of tensordict before 0.3, which is not supported: load it with that "
         "version, and save its to_dict() with torch.save");
  }
  return {};
}

bool IsIndex(std::string_view file, const Probe& probe) {
  return file == kMetaName && TextOf(probe.head).starts_with('{') &&
         (HasMark(TextOf(probe.head)) || HasMark(TextOf(probe.tail)));
}

Checkpoint Parse(const Folder& folder, const std::string& /*index*/, const ReadOptions& options) {
  Budget& budget = *options.budget;
  return ReadTree(*MakeDirectory(folder, budget), budget);
}

}  // namespace
}  // namespace tensordict

extern const FolderFormat tensordict_format{.name = "tensordict",
                                            .find = tensordict::Find,
                                            .is_index = tensordict::IsIndex,
                                            .parse = tensordict::Parse};

}  // namespace ckptfs
