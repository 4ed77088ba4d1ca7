#include "fs/store_tree.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <utility>

#include "fs/strict.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

// A file that was written so recently may not be complete.
constexpr time_t kYoung = 2;  // Seconds.

bool IsYoung(const timespec& modified) {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const time_t age = now.tv_sec - modified.tv_sec - (now.tv_nsec < modified.tv_nsec ? 1 : 0);
  return modified.tv_sec != 0 && age < kYoung;
}

Tree TreeOfError(const std::string& message) {
  TreeBuilder builder;
  const uint32_t file = builder.AddText(message + "\n");
  builder.SetEntries(Tree::kRoot, {{.name = "error.txt", .inode = file}});
  return builder.Finish();
}

// Whether an error says more about the moment than about the checkpoint.
bool IsPassing(int code) {
  constexpr int kPassing[] = {EINTR, ECANCELED, ESTALE, ENOSPC};
  return IsTransient(code) || std::ranges::count(kPassing, code) != 0;
}

}  // namespace

std::optional<StoredTree> ReadStoredTree(const StoreRequest& request, bool& is_reported) {
  const EntryInfo& info = request.item.info;
  const std::string& name = request.item.checkpoint;
  const auto readers = std::make_shared<Readers>();
  if (info.group) readers->Add(info.permissions, *info.group);
  const auto store = [&](TreeReader::Result result) {
    const gid_t group = request.options.gid.value_or(::getgid());
    return StoredTree{
        .tree = std::make_shared<const Tree>(std::move(result.tree)),
        .memory = result.memory,
        .path = request.path,
        .modified = info.modified,
        .umask = request.options.umask ? *request.options.umask : readers->MaskFor(group)};
  };
  const bool is_first = !std::exchange(is_reported, true);
  bool is_there = false;
  try {
    Source source{.file = nullptr,
                  .folder = MakeReportingFolder(request.folder.shared(), readers),
                  .file_name = name};
    if (info.is_folder) {
      source = {.file = nullptr, .folder = source.folder->OpenFolder(name), .file_name = ""};
      if (source.folder == nullptr) Fail(ENOENT, "{}: no such directory", request.path);
    } else {
      source.file = source.folder->Open(name);
    }
    is_there = true;
    TreeReader::Result result = request.read(source);
    if (is_first) LogWarnings(request.log, source.name(), result.warnings);
    return store(std::move(result));
  } catch (const Error& e) {
    if (!is_there || IsPassing(e.code())) throw;
    if (IsYoung(info.modified)) {
      is_reported = false;
      return std::nullopt;
    }
    if (is_first) request.log.Write(Log::Level::kError, e.what());
    Tree tree = TreeOfError(e.what());
    const uint64_t memory = tree.memory();
    return store({.tree = std::move(tree), .memory = memory, .umask = 0, .warnings = {}});
  }
}

}  // namespace ckptfs
