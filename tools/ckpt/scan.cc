#include "tools/ckpt/commands.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "fs/checks.h"
#include "fs/guard.h"
#include "fs/remote.h"
#include "fs/secrets.h"
#include "parser/base/budget.h"
#include "parser/base/cancellation.h"
#include "parser/io/location.h"
#include "parser/view/imports.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/parallel.h"

namespace ckptfs::ckpt {
namespace {

// A file that is to be scanned.
struct File {
  std::string name;
  std::function<ByteSourcePtr()> open;
};

// Adds the files in `folder`, which is called `name`, and in the folders in it.
void AddFiles(const FolderPtr& folder, const std::string& name, std::vector<File>& files) {
  const std::string prefix = name.ends_with('/') ? name : name + "/";
  for (const std::string& file : folder->List()) {
    files.push_back({prefix + file, [folder, file] { return folder->Open(file); }});
  }
  for (const std::string& inner : folder->ListFolders()) {
    if (const FolderPtr opened = folder->OpenFolder(inner)) {
      AddFiles(opened, prefix + inner, files);
    }
  }
}

// Scans files, several at once. Its methods throw nothing but std::bad_alloc.
class Scanner {
 public:
  // `opener` must outlive this.
  explicit Scanner(const Opener& opener)
      : options_(opener.options()), secrets_(options_), remote_(options_, readers_, opener.log()) {}

  // Returns the results for the files that `sources` are and contain.
  std::vector<ScannedFile> Scan(std::span<const std::string> sources);

 private:
  void AddSource(const std::string& source, std::vector<File>& files);
  ScannedFile ScanFile(const File& file);
  Imports Read(const File& file);

  const Options& options_;
  std::mutex mutex_;
  Secrets secrets_;  // Guarded by it.
  Readers readers_;
  Remote remote_;
};

Imports Scanner::Read(const File& file) {
  Budget budget;
  budget.WatchRetries(remote_.retries());
  budget.SetTime(ParseTimeOf(options_, remote_.is_used()));
  const Cancellation::IsCancelled is_late = [&] {
    return Budget::Clock::now() >= budget.deadline();
  };
  const Cancellation cancellation(is_late);
  const auto ask = [&](bool takes_passphrase) {
    const std::lock_guard lock(mutex_);
    return secrets_.Get(takes_passphrase);
  };
  const auto scratch = std::make_shared<ScratchSpace>();
  const ReadOptions what{.ask_secret = ask, .scratch = scratch, .budget = &budget};
  return Metered(budget, [&] {
    const ByteSourcePtr opened = file.open();
    budget.AddFile(StoredSize(*opened), opened->is_remote());
    return ReadImports(opened, what);
  });
}

ScannedFile Scanner::ScanFile(const File& file) {
  ScannedFile scanned{.name = file.name, .findings = {}, .error = {}};
  try {
    Imports imports = Read(file);
    scanned.is_checkpoint = imports.is_checkpoint;
    for (Import& import : imports.list) {
      const Danger danger = DangerOf(import.global.name, import.global.is_refused);
      if (danger == Danger::kCode || (danger != Danger::kNone && import.is_certain)) {
        scanned.findings.push_back({std::move(import), danger});
      }
    }
    scanned.is_checkpoint |= !scanned.findings.empty();
    scanned.error = std::move(imports.error);
  } catch (const Error& e) {
    scanned.error = e;
  }
  if (scanned.error && !std::string_view(scanned.error->what()).starts_with(file.name)) {
    scanned.error = WithContext(file.name, *scanned.error);
  }
  return scanned;
}

std::vector<ScannedFile> Scanner::Scan(std::span<const std::string> sources) {
  std::vector<File> files;
  for (const std::string& source : sources) AddSource(source, files);
  std::vector<ScannedFile> scanned(files.size());
  InParallel(files.size(), [&](size_t i) { scanned[i] = ScanFile(files[i]); });
  return scanned;
}

// A local file is opened again when its turn comes: there may be more than can be open at once.
void Scanner::AddSource(const std::string& source, std::vector<File>& files) {
  const std::string name = Redacted(source);
  const size_t before = files.size();
  try {
    const Source opened = remote_.Open(source);
    if (opened.file == nullptr) return AddFiles(opened.folder, name, files);
    if (opened.file->is_remote()) return files.push_back({name, [opened] { return opened.file; }});
    files.push_back({name, [this, source] { return remote_.OpenFile(source); }});
  } catch (const Error& e) {
    files.resize(before);
    files.push_back({name, [e]() -> ByteSourcePtr { throw Error(e); }});
  }
}

}  // namespace

int Scan(std::span<const std::string> sources, const Opener& opener, ScanFormat format) {
  const std::vector<ScannedFile> files = Scanner(opener).Scan(sources);
  Print(FindingsText(files, format));
  return std::ranges::any_of(files, &ScannedFile::is_bad) ? 1 : 0;
}

}  // namespace ckptfs::ckpt
