// Scanners have been deceived by corrupt pickles, whose beginning runs nevertheless, by several
// pickles in one file, by names of members, and by nested archives. So the bytes of each member are
// searched for pickles. A file is read as a checkpoint only if its format compresses pickles or
// puts other data between the opcodes.

#include "parser/view/imports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/text.h"
#include "parser/codec/npy.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/codec/tar.h"
#include "parser/codec/zip.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/format/archive/members.h"
#include "parser/format/common/diagnose.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/repr.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/block_cache.h"

namespace ckptfs {
namespace {

constexpr int kMostNestedArchives = 4;  // Of archives in archives.

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> HeadOf(const ByteSource& source) {
  std::vector<std::byte> head(std::min<uint64_t>(kProbeHead, source.size()));
  source.ReadAt(0, head);
  return head;
}

bool IsGzip(std::span<const std::byte> head) { return TextOf(head).starts_with("\x1f\x8b"); }

// Whether programs unpickle files with that name; some decompress them before.
bool IsCalledPickle(std::string_view name) {
  constexpr std::string_view kCompressed[] = {".gz", ".z", ".bz2", ".xz", ".lzma", ".lz4"};
  constexpr std::string_view kPickles[] = {".pkl",  ".pickle", ".joblib", ".dill",
                                           ".ckpt", ".pt",     ".pth"};
  std::string lower = ToLower(name);
  const auto is_end = [&](std::string_view suffix) { return lower.ends_with(suffix); };
  if (const auto* end = std::ranges::find_if(kCompressed, is_end); end != std::end(kCompressed)) {
    lower.resize(lower.size() - end->size());
  }
  return std::ranges::any_of(kPickles, is_end);
}

bool IsZip(std::span<const std::byte> head) {
  return TextOf(head).starts_with("PK\3\4") || TextOf(head).starts_with("PK\5\6");
}

bool HasProtocol(std::span<const std::byte> head) {
  return head.size() > 1 && head[0] == std::byte{0x80} && head[1] <= std::byte{5};
}

// Whether `name` is a storage of torch.save: "model/data/7" beside "model/data.pkl".
bool IsStorage(const Members& members, std::string_view name) {
  constexpr std::string_view kFolder = "data/";
  const size_t at = name.rfind(kFolder);
  if (at == std::string_view::npos || (at > 0 && name[at - 1] != '/')) return false;
  return !IsCalledPickle(name) &&
         members.Find(fmt::format("{}data.pkl", name.substr(0, at))) != nullptr;
}

// "posix.system('ls')", truncated.
std::string CallText(std::string_view name, const pickle::Value& arguments) {
  constexpr size_t kMost = 200;  // Bytes.
  std::string text = fmt::format("{}{}", name, torch::Repr(arguments));
  if (text.ends_with(",)")) text.erase(text.size() - 2, 1);
  if (text.size() <= kMost) return text;
  return std::string(utf8::Truncate(text, kMost)) + "...";
}

// Collects the imports of a file. Belongs to one thread.
class Collector {
 public:
  // Of the file `name`. `options` must outlive this.
  Collector(std::string name, const ReadOptions& options)
      : name_(std::move(name)), options_(options), budget_(*options.budget) {}

  // Adds the imports of the file `source`, which is `member` of `depth` archives.
  void AddFile(const ByteSourcePtr& source, const std::string& member, int depth);

  // The same for a zip archive.
  void AddZip(const ByteSourcePtr& source, const std::string& member, int depth);

  // Adds the imports of the checkpoint `file`, and discards the error of reading it as plain
  // pickles.
  void AddCheckpoint(const ByteSourcePtr& file);

  void SetError(const std::string& member, const Error& error) {
    if (!imports_.error) imports_.error = member.empty() ? error : WithContext(member, error);
  }

  void SetCheckpoint() { imports_.is_checkpoint = true; }

  bool is_checkpoint() const { return imports_.is_checkpoint; }
  bool has_error() const { return imports_.error.has_value(); }

  Imports Take() && { return std::move(imports_); }

 private:
  void AddTar(const ByteSourcePtr& source, const std::string& member, int depth);
  void AddArray(const ByteSourcePtr& source, const std::string& member);

  // Returns whether there are pickles. If that `is_certain`, an error of the first one is reported.
  bool AddPickles(const Extent& data, const std::string& member, bool is_certain);
  void Add(const pickle::Graph& graph, const std::string& member, bool is_certain);

  const std::string name_;
  const ReadOptions& options_;
  Budget& budget_;
  Imports imports_;
};

void Collector::Add(const pickle::Graph& graph, const std::string& member, bool is_certain) {
  torch::Globals globals(budget_);
  globals.Add(graph);
  Checkpoint named;
  globals.Report(named);
  const size_t first = imports_.list.size();
  for (Global& global : named.globals) {
    budget_.Charge(2 * (sizeof(Import) + member.size()));
    imports_.list.push_back(
        {.global = std::move(global), .call = "", .member = member, .is_certain = is_certain});
  }
  const auto added = std::span(imports_.list).subspan(first);
  for (const pickle::Value& call : graph.calls()) {
    budget_.Work(1);
    const pickle::Object& object = pickle::ObjectOf(call);
    if (object.target.kind != pickle::Kind::kGlobal) continue;
    const std::string name = torch::QualifiedName(object.target);
    const auto import =
        std::ranges::lower_bound(added, name, {}, [](const Import& i) { return i.global.name; });
    if (import == added.end() || import->global.name != name || !import->global.is_refused)
      continue;
    if (++import->calls > 1) continue;
    import->call = CallText(name, object.arguments);
    budget_.Charge(import->call.size());
  }
}

bool Collector::AddPickles(const Extent& data, const std::string& member, bool is_certain) {
  if (data.length == 0) return false;
  std::byte first = {};
  data.source->ReadAt(data.offset, {&first, 1});
  Extent rest = data;
  bool is_found = false;
  do {
    const pickle::PartialRun run = pickle::RunPartly(rest, budget_);
    const bool is_pickle = !run.error || (is_certain && !is_found) || run.has_more ||
                           budget_.is_spent() || IsTransient(run.error->code());
    is_found |= is_pickle && (is_certain || run.has_more || !run.graph.globals().empty());
    Add(run.graph, member, is_pickle || is_certain);
    if (run.error) {
      if (is_pickle || (is_certain && !run.graph.globals().empty())) SetError(member, *run.error);
      break;
    }
    rest.offset += run.length;
    rest.length -= run.length;
  } while (pickle::IsNextPickle(rest, first));
  imports_.is_checkpoint |= is_found;
  return is_found;
}

void Collector::AddArray(const ByteSourcePtr& source, const std::string& member) {
  SetCheckpoint();
  const npy::ArrayHeader header = npy::ReadHeader(*source, 0, source->size(), budget_);
  if (!header.type.has_objects) return;
  AddPickles({source, header.data_offset, source->size() - header.data_offset}, member, true);
}

void Collector::AddTar(const ByteSourcePtr& source, const std::string& member, int depth) {
  for (const tar::Member& file : tar::ReadDirectory(*source, budget_)) {
    if (!file.error.empty()) continue;  // A link.
    const auto slice = std::make_shared<Slice>(Extent{source, file.offset, file.size});
    AddFile(slice, member.empty() ? file.name : member + "/" + file.name, depth);
  }
}

void Collector::AddZip(const ByteSourcePtr& source, const std::string& member, int depth) {
  const Members members({source, 0, source->size()}, budget_, options_,
                        std::make_shared<BlockCache>());
  for (const zip::Member& file : members.list()) {
    if (IsStorage(members, file.name)) continue;
    const std::string name =
        member.empty() ? std::string(file.name) : fmt::format("{}/{}", member, file.name);
    const Record record = members.Open(file, file.name);
    if (record.error) {
      if (IsCalledPickle(name)) SetError(member, *record.error);
      continue;
    }
    AddFile(std::make_shared<Slice>(record.data), name, depth);
  }
}

void Collector::AddFile(const ByteSourcePtr& source, const std::string& member, int depth) try {
  const std::vector<std::byte> head = HeadOf(*source);
  const bool is_zip = IsZip(head);
  const bool is_tar = !is_zip && tar::IsTar(head);
  if (is_zip || is_tar) {
    if (depth == kMostNestedArchives)
      Fail(ENOTSUP, "archives are nested more than {} deep", kMostNestedArchives);
    if (is_zip) return AddZip(source, member, depth + 1);
    AddTar(source, member, depth + 1);
    AddPickles({source, 0, source->size()}, member, false);  // It begins with a name.
    return;
  }
  if (npy::IsNpy(head)) return AddArray(source, member);
  const std::string& name = member.empty() ? name_ : member;
  const bool is_certain = HasProtocol(head) && (depth == 0 || IsCalledPickle(name));
  const bool is_found = AddPickles({source, 0, source->size()}, member, is_certain);
  if (is_found || !IsCalledPickle(name) || IsGzip(head)) return;
  // Other programs may unpack it and unpickle the result.
  const Diagnosis diagnosis =
      DiagnoseUnknownFile({.size = source->size(), .head = head, .tail = {}});
  if (!diagnosis.text.empty() && source->size() > 0) Fail(ENOTSUP, "{}", diagnosis.text);
} catch (const Error& e) {
  SetError(member, e);
}

void Collector::AddCheckpoint(const ByteSourcePtr& file) {
  const Checkpoint checkpoint =
      ReadCheckpoint(Source{.file = file, .folder = nullptr, .file_name = ""}, options_);
  SetCheckpoint();
  imports_.error.reset();
  for (const Global& global : checkpoint.globals) {
    const auto is_same = [&](const Import& import) { return import.global.name == global.name; };
    if (std::ranges::any_of(imports_.list, is_same)) continue;
    imports_.list.push_back({.global = global, .call = "", .member = ""});
  }
}

// Reading many small pieces is cheaper from memory than from the file.
ByteSourcePtr InMemoryIfSmall(const ByteSourcePtr& file) {
  constexpr size_t kSmall = size_t{256} << 10U;
  if (file->size() > kSmall) return file;
  std::string bytes(static_cast<size_t>(file->size()), '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(bytes)));
  return std::make_shared<MemorySource>(std::move(bytes));
}

// Whether a file that does not begin as a zip archive ends as one.
bool EndsAsZip(const ByteSource& file, std::span<const std::byte> head) {
  if (IsZip(head)) return false;
  std::vector<std::byte> tail(std::min<uint64_t>(kProbeTail, file.size()));
  file.ReadAt(file.size() - tail.size(), tail);
  return zip::HasEndRecord(tail);
}

}  // namespace

Imports ReadImports(const ByteSourcePtr& opened, const ReadOptions& options) {
  const std::string name = opened->name();
  const ByteSourcePtr file = InMemoryIfSmall(opened);
  Collector collector(name, options);
  const std::vector<std::byte> head = HeadOf(*file);
  const Probe probe{.size = file->size(), .head = head, .tail = {}};
  collector.AddFile(file, "", 0);
  if (!IsZip(head) && FormatOf(probe) != nullptr) collector.SetCheckpoint();
  try {
    if (IsGzip(head) || (HasProtocol(head) && collector.has_error())) {
      collector.AddCheckpoint(opened);  // joblib.dump writes arrays between the opcodes.
    } else if (!collector.is_checkpoint() && EndsAsZip(*file, head)) {
      collector.AddZip(file, "", 1);
    }
  } catch (const Error& e) {
    const bool is_other = e.code() == ENOTSUP && !IsCalledPickle(name);
    if (!is_other) collector.SetError("", e);
  }
  return std::move(collector).Take();
}

}  // namespace ckptfs
