#include "parser/format/archive/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/nesting_level.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/format/archive/record.h"
#include "parser/format/common/annotations.h"
#include "parser/format/common/diagnose.h"
#include "parser/io/folder.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {
namespace {

// A directory with the files and directories in it. Belongs to `files`, which must outlive it.
struct ArchiveNode {
  std::map<std::string, const ArchivedFile*, std::less<>> files;
  std::map<std::string, ArchiveNode, std::less<>> folders;
};

constexpr size_t kMostDepth = 32;  // Nested directories.

// Returns the bytes of `file`. Throws Error if they cannot be read.
ByteSourcePtr SourceOf(const ArchivedFile& file) {
  const Record& record = file.record;
  record.Check();
  return std::make_shared<Slice>(record.data);
}

// A directory as a folder, which `node` and its files must outlive.
class ArchiveFolder final : public Folder {
 public:
  ArchiveFolder(const ArchiveNode& node, std::string name) : node_(node), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  std::vector<std::string> List() const override { return NamesOf(node_.files); }
  std::vector<std::string> ListFolders() const override { return NamesOf(node_.folders); }

  ByteSourcePtr Open(const std::string& name) const override {
    Check(name);
    const auto found = node_.files.find(name);
    if (found == node_.files.end()) Fail(ENOENT, "no such file in the archive");
    return SourceOf(*found->second);
  }

  std::shared_ptr<const Folder> OpenFolder(const std::string& name) const override {
    Check(name);
    const auto found = node_.folders.find(name);
    if (found == node_.folders.end()) return nullptr;
    return std::make_shared<ArchiveFolder>(found->second, name);
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    Check(name);
    if (const auto file = node_.files.find(name); file != node_.files.end()) {
      return EntryInfo{.size = file->second->record.data.length};
    }
    if (!node_.folders.contains(name)) return std::nullopt;
    return EntryInfo{.is_folder = true};
  }

 private:
  static void Check(const std::string& name) {
    if (!IsPlainName(name)) Fail(EBADMSG, "invalid file name");
  }

  template <typename T>
  static std::vector<std::string> NamesOf(const std::map<std::string, T, std::less<>>& entries) {
    if (entries.size() > kMostFiles) {
      Fail(EFBIG, "has {} files in one directory (maximum {})", entries.size(), kMostFiles);
    }
    std::vector<std::string> names;
    std::ranges::transform(entries, std::back_inserter(names),
                           [](const auto& entry) { return entry.first; });
    return names;
  }

  const ArchiveNode& node_;
  const std::string name_;
};

// Returns the root of `files`. Throws Error: EBADMSG if a path is invalid, EFBIG if it is too deep.
ArchiveNode TreeOf(const std::vector<ArchivedFile>& files, Budget& budget) {
  ArchiveNode root;
  for (const ArchivedFile& file : files) {
    ArchiveNode* node = &root;
    std::string_view path = file.path;
    size_t depth = 0;
    for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/')) {
      if (++depth > kMostDepth) {
        Fail(EFBIG, "{} is more than {} directories deep", Quoted(file.path), kMostDepth);
      }
      budget.Charge(sizeof(ArchiveNode) + 8 * sizeof(void*) + slash);
      node = &node->folders[std::string(path.substr(0, slash))];
      path.remove_prefix(slash + 1);
    }
    if (!IsPlainName(path)) Fail(EBADMSG, "invalid file name {}", Quoted(file.path));
    budget.Charge(8 * sizeof(void*) + path.size());
    node->files.emplace(path, &file);
  }
  return root;
}

constexpr uint64_t kCostOfMember = 2 * sizeof(Member) + sizeof(Group);

// Bytes to decode for the begin of a file.
constexpr uint64_t kCostOfHead = uint64_t{1} << 20;

class ArchiveReader {
 public:
  ArchiveReader(ArchiveAllowance& allowance, Budget& budget, const ReadOptions& options)
      : allowance_(allowance), budget_(budget), notes_(budget), options_(options) {
    options_.archives = &allowance;
  }

  Checkpoint Read(const ArchiveNode& root, std::string_view kind) {
    AddFolder(root, "", checkpoint_.root);
    if (checkpoints_ == 0) FailWithout(kind);
    if (!left_out_.empty()) {
      checkpoint_.warnings.push_back(fmt::format(
          "{} of its files are not checkpoints in a supported format and are ignored: {}",
          left_out_.size(), Listed(left_out_)));
    }
    if (!annotations_.empty()) {
      checkpoint_.annotations.emplace_back("files", fmt::format("{{{}}}", annotations_));
    }
    notes_.Finish(checkpoint_);
    checkpoint_.format = kind;
    return std::move(checkpoint_);
  }

 private:
  [[noreturn]] void FailWithout(std::string_view kind) const {
    if (first_error_) throw Error(first_error_->code(), first_error_->what());
    Fail(ENOTSUP, "{} archive without a checkpoint in a supported format{}{}", kind,
         left_out_.empty() ? "" : ", but with ",
         hint_.empty() ? Listed(left_out_) : fmt::format("{}: {}", Quoted(hint_name_), hint_));
  }

  // Adds the directory `node`, whose path is empty or ends with '/'. The recursion is bounded by
  // the depth of the tree.
  void AddFolder(const ArchiveNode& node, const std::string& path, Group& group) {
    if (AddSharded(node, path, group)) return;
    for (const auto& [name, file] : node.files) AddFile(name, *file, group);
    for (const auto& [name, child] : node.folders) {
      Group inner;
      AddFolder(child, path + name + '/', inner);
      if (!inner.members.empty()) AddGroup(name, std::move(inner), group);
    }
  }

  void AddGroup(const std::string& name, Group inner, Group& group) {
    budget_.Charge(kCostOfMember + name.size());
    group.members.push_back({{name, Key::Kind::kWhole}, std::make_unique<Group>(std::move(inner))});
  }

  // Adds a directory that is a checkpoint in several files. Returns whether it is one.
  bool AddSharded(const ArchiveNode& node, const std::string& path, Group& group) {
    const ArchiveFolder folder(node, path.empty() ? "." : path);
    const std::vector<std::string> files = folder.List();
    for (const FolderFormat* format : FolderFormats()) {
      try {
        const std::string index = format->find(folder, files);
        if (index.empty()) continue;
        if (!SpendAll(node)) Fail(EFBIG, "its files expand beyond the limit of an archive");
        Checkpoint checkpoint = ReadCheckpoint(*format, folder, index, options_);
        const Record nowhere;
        Relocate(checkpoint.root, nullptr, nowhere, path.substr(0, path.size() - 1));
        Take(std::move(checkpoint), path.empty() ? "." : path.substr(0, path.size() - 1), group);
        return true;
      } catch (const Error& e) {
        if (IsFatal(e)) throw;
        Warn(path.empty() ? "." : path, e);
        return false;
      }
    }
    return false;
  }

  bool SpendAll(const ArchiveNode& node) {
    return std::ranges::all_of(
               node.files, [&](const auto& file) { return allowance_.Spend(file.second->cost); }) &&
           std::ranges::all_of(node.folders,
                               [&](const auto& child) { return SpendAll(child.second); });
  }

  void AddFile(const std::string& name, const ArchivedFile& file, Group& group) {
    try {
      const ByteSourcePtr source = SourceOf(file);
      const Format* format = FormatIn(*source, file);
      if (format != nullptr && AddCheckpoint(name, file, source, *format, group)) return;
      if (AddText(name, file, group)) return;
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      Warn(file.path, e);
      return;
    }
    left_out_.push_back(file.path);
    budget_.Charge(2 * sizeof(std::string) + file.path.size());
  }

  // Detects the format of a file; returns null if there is none.
  const Format* FormatIn(const ByteSource& source, const ArchivedFile& file) {
    if (source.size() == 0) return nullptr;
    if (!allowance_.Spend(std::min(file.cost, kCostOfHead))) {
      Fail(ENOTSUP,
           "the files expand beyond the limit of an archive of this size: unpack it first");
    }
    std::vector<std::byte> head(std::min<uint64_t>(kProbeHead, source.size()));
    source.ReadAt(0, head);
    // The end of a compressed file is not read, so an old pickle is not detected there.
    std::byte last = source.size() == head.size() ? head.back() : std::byte{};
    if (file.cost == 0) source.ReadAt(source.size() - 1, {&last, 1});
    const Probe probe{.size = source.size(), .head = head, .tail = {&last, 1}};
    const Format* format = FormatOf(probe);
    if (format == nullptr && hint_.empty()) {
      // Many archives contain JSON beside a checkpoint, so that it explains nothing.
      const Diagnosis diagnosis = DiagnoseUnknownFile(probe);
      hint_ = diagnosis.is_json ? std::string_view() : diagnosis.text;
      hint_name_ = file.path;
    }
    return format;
  }

  // Returns false if the file looks like a checkpoint, but is a text.
  bool AddCheckpoint(const std::string& name, const ArchivedFile& file, const ByteSourcePtr& source,
                     const Format& format, Group& group) {
    try {
      if (!allowance_.Spend(file.cost)) {
        Fail(ENOTSUP,
             "expands to {} bytes, beyond the limit of an archive of this size: unpack it first",
             file.record.data.length);
      }
      Checkpoint checkpoint = ReadCheckpoint(format, source, options_);
      Relocate(checkpoint.root, source, file.record, file.path);
      Group inner;
      Take(std::move(checkpoint), file.path, inner);
      AddGroup(name, std::move(inner), group);
      return true;
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      if (AddText(name, file, group)) return true;
      throw;
    }
  }

  bool AddText(const std::string& name, const ArchivedFile& file, Group& group) {
    if (file.record.data.length > kMostText || !allowance_.Spend(file.cost)) return false;
    const auto text = TextIn(file.record, budget_);
    if (!text) return false;
    budget_.Charge(kCostOfMember + name.size());
    group.members.push_back({{name, Key::Kind::kWhole}, ValueOfText(*text, budget_)});
    return true;
  }

  // Moves the checkpoint in `path` into `group`.
  void Take(Checkpoint checkpoint, std::string_view path, Group& group) {
    ++checkpoints_;
    std::string json = notes_.Add(checkpoint);
    budget_.Charge(json.size() + 2 * path.size());
    if (!annotations_.empty()) annotations_ += ',';
    annotations_ += fmt::format("{}:{{{}}}", json::String(path), json);
    for (const std::string& warning : checkpoint.warnings) {
      checkpoint_.warnings.push_back(fmt::format("{}: {}", path, warning));
      budget_.Charge(sizeof(std::string) + checkpoint_.warnings.back().size());
    }
    group.python_type = std::move(checkpoint.root.python_type);
    group.collection = std::move(checkpoint.root.collection);
    group.about = std::move(checkpoint.root.about);
    group.table = std::move(checkpoint.root.table);
    std::ranges::move(checkpoint.root.members, std::back_inserter(group.members));
  }

  void Warn(std::string_view path, const Error& e) {
    const Error error = WithContext(path, e);
    if (!first_error_) first_error_ = error;
    checkpoint_.warnings.push_back(fmt::format("{}: ignored", error.what()));
    budget_.Charge(sizeof(std::string) + checkpoint_.warnings.back().size());
  }

  ArchiveAllowance& allowance_;
  Budget& budget_;
  MergedAnnotations notes_;
  ReadOptions options_;
  Checkpoint checkpoint_;
  size_t checkpoints_ = 0;   // Number of those that could be read.
  std::string annotations_;  // Of each checkpoint: members of a JSON object.
  std::vector<std::string> left_out_;
  std::string_view hint_;  // Diagnosis of the first file that is not a checkpoint.
  std::string hint_name_;
  std::optional<Error> first_error_;
};

}  // namespace

Checkpoint ReadArchivedFiles(const std::vector<ArchivedFile>& files, std::string_view kind,
                             uint64_t size, Budget& budget, const ReadOptions& options) {
  ArchiveAllowance own(size);
  ArchiveAllowance& allowance = options.archives != nullptr ? *options.archives : own;
  if (allowance.depth == ArchiveAllowance::kMostDepth) {
    Fail(ENOTSUP, "archives are nested more than {} deep", ArchiveAllowance::kMostDepth);
  }
  const NestingLevel level(allowance.depth);
  for (const ArchivedFile& file : files) CheckMemberName(file.path);
  const ArchiveNode root = TreeOf(files, budget);
  return ArchiveReader(allowance, budget, options).Read(root, kind);
}

}  // namespace ckptfs
