// The safetensors format of Hugging Face (https://github.com/huggingface/safetensors): a header in
// JSON and the bytes of the tensors behind it; see safetensors/header.h.
//
// We are as strict as the reference, and stricter where it breaks the specification: no tensor may
// occur twice. Of metadata with one key the last counts. We are more lenient in one thing: a dtype
// that is newer than this program is shown as bytes, where the reference refuses the whole file.
//
// As tensors tile the file, tied ones cannot share their bytes. What safetensors.torch.save_model
// does is to leave out all but one of them, and to put {"dropped name": "kept name"} among the
// metadata. We offer the dropped names again.

#include <algorithm>
#include <memory_resource>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/byte_reader.h"
#include "parser/base/json.h"
#include "parser/format.h"
#include "parser/format/safetensors/header.h"

namespace ckptfs {
namespace safetensors {
namespace {

// The object must begin in the first bytes, or else these must be blank: some programs pad there.
// Lengths far beyond the limit belong to other files, in which the first 8 bytes are text.
bool Matches(const Probe& probe) {
  constexpr uint64_t kMostLength = uint64_t{1} << 40U;
  ByteReader reader("prefix", probe.head);
  if (reader.remaining() <= sizeof(uint64_t)) return false;
  if (reader.Read<uint64_t>("length") > kMostLength) return false;
  const std::string_view text = reader.TakeText(reader.remaining(), "text");
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? probe.size > probe.head.size() : text[first] == '{';
}

void AddMetadata(const Header& header, Budget& budget, Checkpoint& checkpoint) {
  if (header.metadata.empty()) return;
  std::string json = "{";
  for (const auto& [key, text] : header.metadata) {
    json::AppendString(json, key);
    json += ':';
    json::AppendString(json, text);
    json += ',';
  }
  json.back() = '}';
  budget.Charge(json.size());
  checkpoint.annotations.emplace_back("metadata", std::move(json));
}

// Adds the names that save_model has dropped.
void AddTied(const Header& header, const ByteSourcePtr& file, Budget& budget,
             Checkpoint& checkpoint) {
  if (header.metadata.empty()) return;
  std::pmr::vector<const Entry*> by_name(header.entries.size(), &budget);
  std::ranges::transform(header.entries, by_name.begin(), [](const Entry& e) { return &e; });
  std::ranges::sort(by_name, {}, &Entry::name);
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::lower_bound(
        by_name, name, {}, [](const Entry* e) { return std::string_view(e->name); });
    return found == by_name.end() || (*found)->name != name ? nullptr : *found;
  };
  for (const auto& [dropped, kept] : header.metadata) {
    const Entry* entry = find(kept);
    if (entry == nullptr || find(dropped) != nullptr) continue;
    budget.Charge(2 * sizeof(Member) + dropped.size() + kept.size());
    Tensor tensor = TensorOf(*entry, header, file);
    tensor.annotations.emplace_back("tied_to", json::String(kept));
    checkpoint.root.members.push_back({{dropped}, std::move(tensor)});
  }
}

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  const ByteSourcePtr& file = source.file;
  Budget& budget = *options.budget;
  const Header header = ReadHeader(*file, budget);
  Checkpoint checkpoint;
  checkpoint.root.members.reserve(header.entries.size());
  for (const Entry& entry : header.entries) {
    checkpoint.root.members.push_back({{entry.name}, TensorOf(entry, header, file)});
  }
  AddTied(header, file, budget, checkpoint);
  AddMetadata(header, budget, checkpoint);
  return checkpoint;
}

}  // namespace
}  // namespace safetensors

extern const Format safetensors_format{
    .name = "safetensors", .matches = safetensors::Matches, .parse = safetensors::Parse};

}  // namespace ckptfs
