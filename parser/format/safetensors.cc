// The safetensors format of Hugging Face (https://github.com/huggingface/safetensors): a JSON
// header, followed by the data of the tensors; see safetensors/header.h.
//
// ckptfs is as strict as the reference, and stricter where that deviates from the specification:
// duplicate tensors are rejected. It is more lenient in one respect: a dtype that is newer than
// this program is shown as bytes, where the reference rejects the whole file.
//
// Tensors tile the file, so tied tensors cannot share bytes. safetensors.torch.save_model writes
// only one of them and adds {"dropped name": "kept name"} to the metadata. ckptfs shows the dropped
// names, too.

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

// The object must begin in the first bytes unless these are blank: some programs pad there. A
// length far beyond the limit means that the first 8 bytes are text of another format.
bool Matches(const Probe& probe) {
  constexpr uint64_t kMostLength = uint64_t{1} << 40U;
  ByteReader reader("prefix", probe.head);
  if (reader.remaining() <= sizeof(uint64_t)) return false;
  if (reader.Read<uint64_t>("length") > kMostLength) return false;
  const std::string_view text = reader.TakeText(reader.remaining(), "text");
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? probe.size > probe.head.size() : text[first] == '{';
}

// Returns whether the file begins with the length of a JSON object and with that object, which is
// not empty, as far as the head shows it. Numbers look like a length and a brace, but hardly like
// JSON.
bool IsCertain(const Probe& probe) {
  if (!Matches(probe)) return false;
  ByteReader reader("prefix", probe.head);
  const auto length = reader.Read<uint64_t>("length");
  if (length > probe.size - sizeof(uint64_t)) return false;
  const bool is_whole = length <= reader.remaining();
  std::string_view text =
      reader.TakeText(is_whole ? static_cast<size_t>(length) : reader.remaining(), "text");
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };
  constexpr std::string_view kBlanks = " \t\r\n";
  if (std::ranges::any_of(text, [&](char c) {
        return is_control(c) && kBlanks.find(c) == std::string_view::npos;
      })) {
    return false;
  }
  const size_t brace = text.find_first_not_of(kBlanks);
  if (brace == std::string_view::npos) return false;
  const size_t next = text.find_first_not_of(kBlanks, brace + 1);
  if (next == std::string_view::npos || text[next] != '"') return false;
  return !is_whole || text[text.find_last_not_of(kBlanks)] == '}';
}

void AddMetadata(const SafetensorsHeader& header, Budget& budget, Checkpoint& checkpoint) {
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

// Adds the names dropped by save_model.
void AddTied(const SafetensorsHeader& header, const ByteSourcePtr& file, Budget& budget,
             Checkpoint& checkpoint) {
  if (header.metadata.empty()) return;
  std::pmr::vector<const TensorEntry*> by_name(header.entries.size(), &budget);
  std::ranges::transform(header.entries, by_name.begin(), [](const TensorEntry& e) { return &e; });
  std::ranges::sort(by_name, {}, &TensorEntry::name);
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::lower_bound(
        by_name, name, {}, [](const TensorEntry* e) { return std::string_view(e->name); });
    return found == by_name.end() || (*found)->name != name ? nullptr : *found;
  };
  for (const auto& [dropped, kept] : header.metadata) {
    const TensorEntry* entry = find(kept);
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
  const SafetensorsHeader header = ReadHeader(*file, budget);
  Checkpoint checkpoint;
  checkpoint.root.members.reserve(header.entries.size());
  for (const TensorEntry& entry : header.entries) {
    checkpoint.root.members.push_back({{entry.name}, TensorOf(entry, header, file)});
  }
  AddTied(header, file, budget, checkpoint);
  AddMetadata(header, budget, checkpoint);
  return checkpoint;
}

}  // namespace
}  // namespace safetensors

extern const Format safetensors_format{.name = "safetensors",
                                       .matches = safetensors::Matches,
                                       .parse = safetensors::Parse,
                                       .is_certain = safetensors::IsCertain};

}  // namespace ckptfs
