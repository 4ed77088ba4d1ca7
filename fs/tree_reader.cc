#include "fs/tree_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "fs/beside.h"
#include "fs/checks.h"
#include "fs/guard.h"
#include "fs/tensordict.h"
#include "parser/base/budget.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/io/location.h"

namespace ckptfs {
namespace {

class ReportingFolder final : public ForwardingFolder {
 public:
  ReportingFolder(FolderPtr folder, std::shared_ptr<Readers> readers)
      : ForwardingFolder(std::move(folder)), readers_(std::move(readers)) {}

  ByteSourcePtr Open(const std::string& name) const override {
    Report(name);
    return ForwardingFolder::Open(name);
  }
  ByteSourcePtr OpenData(const std::string& name) const override {
    Report(name);
    return ForwardingFolder::OpenData(name);
  }
  FolderPtr OpenFolder(const std::string& name) const override {
    FolderPtr opened = ForwardingFolder::OpenFolder(name);
    if (opened == nullptr) return nullptr;
    Report(name);
    return std::make_shared<ReportingFolder>(std::move(opened), readers_);
  }

 private:
  void Report(const std::string& name) const {
    if (is_remote()) return;
    const auto info = FindAccessible(folder(), name);
    if (info && info->group) readers_->Add(info->permissions, *info->group);
  }

  const std::shared_ptr<Readers> readers_;
};

// Advises the sources of the files of the mount.
void AdviseFiles(const Tree& tree) {
  for (uint64_t number = Tree::kRoot; number < Tree::kRoot + tree.inode_count(); ++number) {
    const Inode& inode = *tree.Find(number);
    if (!inode.is_directory()) inode.source->AdviseFile({inode.offset, inode.length});
  }
}

}  // namespace

FolderPtr MakeReportingFolder(FolderPtr folder, std::shared_ptr<Readers> readers) {
  return std::make_shared<ReportingFolder>(std::move(folder), std::move(readers));
}

TreeReader::TreeReader(const Options& options, const Remote& remote, const Readers& readers,
                       Secrets secrets, Log& log)
    : options_(options),
      remote_(remote),
      readers_(readers),
      log_(log),
      secrets_(std::move(secrets)) {}

TreeReader::Result TreeReader::ReadAlone(const Source& source) {
  Budget budget;
  budget.WatchRetries(remote_.retries());
  const ParseLimits limits(budget, ParseTimeOf(options_, remote_.is_used()), [&] {
    log_.Error("{}: reading the headers does not end", source.name());
    ::_exit(static_cast<int>(ExitCode::kTooLarge));
  });
  Result result = Read(source, Redacted(options_.source), Place::kAlone, budget);
  const MutexLock lock(mutex_);
  if (const std::string option = secrets_.UnneededOption(); !option.empty()) {
    log_.Warning("{}: {} is unused: the checkpoint is not encrypted", source.name(), option);
  }
  return result;
}

TreeReader::Result TreeReader::ReadOneOfMany(const Source& source) {
  Budget budget;
  budget.WatchRetries(remote_.retries());
  budget.SetTime(ParseTimeOf(options_, remote_.is_used()));
  const Cancellation::IsCancelled is_late = [&] {
    return Budget::Clock::now() >= budget.deadline();
  };
  // A repeated parse would begin anew.
  const Cancellation::IsPreempted never = [](bool) { return false; };
  const Cancellation cancellation(is_late, &never);
  return Read(source, source.name(), Place::kInStore, budget);
}

TreeReader::Result TreeReader::Read(const Source& source, const std::string& shown, Place place,
                                    Budget& budget) {
  const mode_t of_folder = readers_.MaskFor(options_.gid.value_or(::getgid()));
  const auto ask = [&](bool takes_passphrase) { return AskSecret(takes_passphrase, budget); };
  const ReadOptions what{.ask_secret = ask,
                         .verification = VerificationFor(options_.verify, log_),
                         .scratch = scratch_,
                         .sidecar = sidecar_,
                         .budget = &budget};
  try {
    Result result = Metered(budget, [&] {
      Checkpoint checkpoint = ReadCheckpoint(source, what);
      if (!options_.subtree.empty()) TakeSubtree(checkpoint, options_.subtree);
      if (options_.strict) CheckWhole(checkpoint, source.name());
      LayoutOptions layout{.is_flat = options_.flat,
                           .has_attributes = options_.xattr,
                           .source = shown,
                           .version = CKPTFS_VERSION,
                           .has_npy = options_.view && options_.view->npy,
                           .beside = {}};
      AddSafetensorsView(checkpoint, source, options_, place == Place::kInStore, budget,
                         layout.beside);
      const mode_t umask = MaskOf(checkpoint, source, of_folder);
      if (place == Place::kAlone) AddCompanions(checkpoint, source, umask, layout.beside);
      std::vector<std::string> warnings = checkpoint.warnings;
      return Result{.tree = LayOut(std::move(checkpoint), layout),
                    .memory = 0,
                    .umask = umask,
                    .warnings = std::move(warnings)};
    });
    result.memory = std::max(budget.metered(), result.tree.memory());
    if (remote_.is_used()) AdviseFiles(result.tree);
    return result;
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(source.name())) throw;
    throw WithContext(source.name(), e);
  }
}

// All files of a directory were opened to find the checkpoint. Those that it consists of count; if
// there are directories among them, all that were opened.
mode_t TreeReader::MaskOf(const Checkpoint& checkpoint, const Source& source,
                          mode_t of_folder) const {
  const gid_t group = options_.gid.value_or(::getgid());
  const mode_t of_all = readers_.MaskFor(group);
  if (source.file || source.folder->is_remote() || checkpoint.parts.empty()) return of_all;
  Readers readers;
  for (const std::string& part : checkpoint.parts) {
    const auto info = FindAccessible(*source.folder, part);
    if (!info || info->is_folder || !info->group) return of_all;
    readers.Add(info->permissions, *info->group);
  }
  return readers.MaskFor(group) | of_folder;
}

void TreeReader::AddCompanions(Checkpoint& checkpoint, const Source& source, mode_t umask,
                               std::vector<BesideEntry>& beside) const {
  if (source.file || !options_.companions) return;
  // Users who may read the checkpoint, but not that file, must not read it.
  const gid_t group = options_.gid.value_or(::getgid());
  const auto is_shown = [&](const EntryInfo& info) {
    if (!options_.allow_other || options_.umask || !info.group) return true;
    Readers readers;
    readers.Add(info.permissions, *info.group);
    return (readers.MaskFor(group) & ~umask) == 0;
  };
  Companions found = FindCompanions(source.folder, checkpoint.parts, is_shown);
  if (!found.are_all)
    checkpoint.warnings.emplace_back("shows not all of the very many other files");
  std::ranges::move(found.entries, std::back_inserter(beside));
}

std::shared_ptr<const Secret> TreeReader::AskSecret(bool takes_passphrase, Budget& budget) {
  budget.StopTime();  // Users may take theirs.
  const MutexLock lock(mutex_);
  auto secret = secrets_.Get(takes_passphrase);
  budget.SetTime(ParseTimeOf(options_, remote_.is_used()));
  return secret;
}

void TreeReader::AllowScratch() {
  scratch_->Allow(options_.scratch ? *options_.scratch : DefaultScratch());
}

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
