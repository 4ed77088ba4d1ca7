// An object that ZANJ saved:
//
//   __zanj__.json       the object: JSON, with tags for other types (value.h)
//   __zanj_meta__.json  about the writer; not needed to read the rest
//   a/b.npy             an array of 256 elements or more, at obj["a"]["b"]
//   c.jsonl             a table, or a list of 256 items or more: an item in each line
//
// Both documents are in Python's dialect of JSON. Member names resemble paths in the object, but
// keys may contain any character, so only the references in the JSON are followed.

#include "parser/format/zanj/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/zanj/tree.h"
#include "parser/format/zanj/value.h"
#include "parser/io/byte_source.h"
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

// Returns the configuration of the writer without its code.
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

// Adds the metadata of the file: configuration and time as annotations, all of it as a table of one
// row, which is not a part of the object for readers of tensors.
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
  Table table{.data = {}, .python_type = "dict", .member = std::string(kMeta), .annotations = {}};
  std::string line = ValueOf(meta, externals).json + '\n';
  const uint64_t length = line.size();
  table.data = {std::make_shared<MemorySource>(std::move(line)), 0, length};
  checkpoint.root.members.push_back({{std::string(kMetaKey)}, std::move(table)});
} catch (const Error& e) {
  if (IsFatal(e)) throw;
  checkpoint.warnings.push_back(fmt::format("{}: the metadata are ignored", e.what()));
}

}  // namespace

bool IsZip(const Members& members) { return members.Find(kObject) != nullptr; }

Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& /*options*/) {
  // Most members are read: the headers of arrays, and small tables completely.
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
        fmt::format("zip: {} members are not referred to and are ignored", unused));
  }
  return checkpoint;
}

namespace {

// Deflate compresses JSON by a factor of 1000 at best; real files reach about 10.
constexpr uint64_t kAllowance = uint64_t{64} << 20;
constexpr uint64_t kAllowancePerByte = 16;

// Rows of up to this size are always searched for arrays.
constexpr uint64_t kMostToSearch = uint64_t{16} << 20;

constexpr std::string_view kRowsEnding = ".jsonl";

}  // namespace

Externals::Externals(const Members& members, uint64_t size)
    : members_(members), allowance_(kAllowance) {
  uint64_t more = 0;
  const bool is_large = __builtin_mul_overflow(size, kAllowancePerByte, &more) ||
                        __builtin_add_overflow(allowance_, more, &allowance_);
  if (is_large) allowance_ = ~uint64_t{};
}

Record Externals::Open(std::string_view reference) {
  constexpr uint64_t kCost = 128;  // In bytes, of an entry.
  const zip::Member* const member = members_.Find(reference);
  if (member == nullptr) {
    return {.data = {},
            .member = std::string(reference),
            .is_in_file = false,
            .error = Error(EBADMSG, fmt::format("no such member: {}", Quoted(reference)))};
  }
  if (opened_.insert(member).second) budget().Charge(kCost);
  return members_.Open(*member, reference);
}

void Externals::TakeAllowance(const Record& record) {
  record.Check();
  const uint64_t size = record.data.length;
  if (!Allows(size)) {
    Fail(EFBIG, "{}: has {} bytes of JSON, but only {} more may be read of a file of this size",
         record.member, size, allowance_);
  }
  allowance_ -= size;
  budget().Grow(StoredSize(record.data));
}

json::Document Externals::ReadValue(const Record& record) {
  TakeAllowance(record);
  try {
    return json::Document::Of(record.data, budget());
  } catch (const Error& e) {
    throw WithContext(record.member, e);
  }
}

json::Document Externals::ReadRows(const Record& record) {
  TakeAllowance(record);
  try {
    return json::Document::OfLines(record.data, budget());
  } catch (const Error& e) {
    throw WithContext(record.member, e);
  }
}

uint64_t Externals::CountRows(const Record& record) {
  TakeAllowance(record);
  std::array<char, 65536> buffer = {};
  uint64_t count = 0;
  for (uint64_t done = 0; done < record.data.length;) {
    const auto length = std::min<uint64_t>(buffer.size(), record.data.length - done);
    const std::span block(buffer.data(), static_cast<size_t>(length));
    record.data.source->ReadAt(record.data.offset + done, std::as_writable_bytes(block));
    count += static_cast<uint64_t>(std::ranges::count(block, '\n'));
    done += length;
    const bool is_cut = done == record.data.length && block.back() != '\n';
    if (is_cut) ++count;
  }
  return count;
}

bool Externals::IsWorthReading(const Record& record) const {
  if (record.data.length <= kMostToSearch) return true;
  std::string_view stem = record.member;
  if (stem.ends_with(kRowsEnding)) stem.remove_suffix(kRowsEnding.size());
  return std::ranges::any_of(members_.list(), [&](const zip::Member& member) {
    return member.name.size() > stem.size() && member.name.starts_with(stem) &&
           member.name[stem.size()] == '/';
  });
}

bool Externals::Enter(std::string_view reference) {
  const zip::Member* const member = members_.Find(reference);
  return member != nullptr && entered_.insert(member).second;
}

size_t Externals::CountUnused() const { return members_.list().size() - opened_.size(); }

}  // namespace ckptfs::zanj
