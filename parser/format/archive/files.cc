#include "parser/format/archive/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/codec/member_name.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/format/archive/allowance.h"
#include "parser/format/archive/folder.h"
#include "parser/format/archive/plain_file.h"
#include "parser/format/archive/relocate.h"
#include "parser/format/common/merged_annotations.h"
#include "parser/format/common/recognize.h"

namespace ckptfs {
namespace {

constexpr uint64_t kCostOfMember = 2 * sizeof(Member) + sizeof(Group);

// What is decoded to look at the beginning of a file.
constexpr uint64_t kCostOfHead = uint64_t{1} << 20;

// Errors of one file that end the reading of all.
bool IsFatal(const Error& e) { return e.code() == EFBIG || IsTransient(e.code()); }

// Counts one archive more as long as it lives.
class Deeper {
 public:
  explicit Deeper(ArchiveAllowance& allowance) : allowance_(allowance) {
    if (allowance_.depth == ArchiveAllowance::kMostDepth) {
      Fail(ENOTSUP, "archives lie in one another more than {} deep", ArchiveAllowance::kMostDepth);
    }
    ++allowance_.depth;
  }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  ~Deeper() { --allowance_.depth; }

 private:
  ArchiveAllowance& allowance_;
};

class Reader {
 public:
  Reader(ArchiveAllowance& allowance, Budget& budget, const ReadOptions& options)
      : allowance_(allowance), budget_(budget), notes_(budget), options_(options) {
    options_.archives = &allowance;
  }

  Checkpoint Read(const ArchiveNode& root, std::string_view kind) {
    AddFolder(root, "", checkpoint_.root);
    if (checkpoints_ == 0) FailWithout(kind);
    if (!left_out_.empty()) {
      checkpoint_.warnings.push_back(
          fmt::format("{} of its files are no checkpoints that we read, and left out: {}",
                      left_out_.size(), Listed(left_out_)));
    }
    if (!told_.empty()) {
      checkpoint_.annotations.emplace_back("files", fmt::format("{{{}}}", told_));
    }
    notes_.Finish(checkpoint_);
    checkpoint_.format = kind;
    return std::move(checkpoint_);
  }

 private:
  [[noreturn]] void FailWithout(std::string_view kind) const {
    if (first_error_) throw Error(first_error_->code(), first_error_->what());
    Fail(ENOTSUP, "is a {} archive without a checkpoint in a format we know{}{}", kind,
         left_out_.empty() ? "" : ", but with ",
         hint_.empty() ? Listed(left_out_) : fmt::format("{}: {}", Quoted(hint_name_), hint_));
  }

  // The directory `node`, whose path is empty or ends with '/'. The depth of the recursion is that
  // of the tree, which is bounded.
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

  // A checkpoint in several files, which the directory is as a whole. Returns whether it is one.
  bool AddSharded(const ArchiveNode& node, const std::string& path, Group& group) {
    const FolderPtr folder = MakeArchiveFolder(node, path.empty() ? "." : path);
    const std::vector<std::string> files = folder->List();
    for (const FolderFormat* format : FolderFormats()) {
      try {
        const std::string index = format->find(*folder, files);
        if (index.empty()) continue;
        if (!SpendAll(node)) Fail(EFBIG, "its files decode to more than an archive may");
        Checkpoint checkpoint = ReadCheckpoint(*format, *folder, index, options_);
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

  // Returns the format that a file begins with; null if there is none.
  const Format* FormatIn(const ByteSource& source, const ArchivedFile& file) {
    if (source.size() == 0) return nullptr;
    if (!allowance_.Spend(std::min(file.cost, kCostOfHead))) {
      Fail(ENOTSUP, "the files decode to more than an archive of this size may: unpack it first");
    }
    std::vector<std::byte> head(std::min<uint64_t>(kProbeHead, source.size()));
    source.ReadAt(0, head);
    // Where a file is not at hand, its end is not looked at: an old pickle is none then.
    std::byte last = source.size() == head.size() ? head.back() : std::byte{};
    if (file.cost == 0) source.ReadAt(source.size() - 1, {&last, 1});
    const Probe probe{.size = source.size(), .head = head, .tail = {&last, 1}};
    const Format* format = FormatOf(probe);
    if (format == nullptr && hint_.empty()) {
      hint_ = Recognize(probe);
      if (hint_.find("JSON") != std::string_view::npos) hint_ = {};
      hint_name_ = file.path;
    }
    return format;
  }

  // Returns false if the file only looks like a checkpoint, but is a text.
  bool AddCheckpoint(const std::string& name, const ArchivedFile& file, const ByteSourcePtr& source,
                     const Format& format, Group& group) {
    try {
      if (!allowance_.Spend(file.cost)) {
        Fail(ENOTSUP,
             "decodes to {} bytes, more than a file in an archive of this size may: unpack "
             "it first",
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

  // Moves what was read of `path` into `group`.
  void Take(Checkpoint checkpoint, std::string_view path, Group& group) {
    ++checkpoints_;
    std::string told = notes_.Add(checkpoint);
    budget_.Charge(told.size() + 2 * path.size());
    if (!told_.empty()) told_ += ',';
    told_ += fmt::format("{}:{{{}}}", json::String(path), told);
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
    checkpoint_.warnings.push_back(fmt::format("{}: it is left out", error.what()));
    budget_.Charge(sizeof(std::string) + checkpoint_.warnings.back().size());
  }

  ArchiveAllowance& allowance_;
  Budget& budget_;
  MergedAnnotations notes_;
  ReadOptions options_;
  Checkpoint checkpoint_;
  size_t checkpoints_ = 0;  // That could be read.
  std::string told_;        // What each tells of itself: members of a JSON object.
  std::vector<std::string> left_out_;
  std::string_view hint_;  // What the first file is that is no checkpoint.
  std::string hint_name_;
  std::optional<Error> first_error_;
};

}  // namespace

Checkpoint ReadArchivedFiles(const std::vector<ArchivedFile>& files, std::string_view kind,
                             uint64_t size, Budget& budget, const ReadOptions& options) {
  ArchiveAllowance own(size);
  ArchiveAllowance& allowance = options.archives != nullptr ? *options.archives : own;
  const Deeper deeper(allowance);
  for (const ArchivedFile& file : files) CheckMemberName(file.path);
  const ArchiveNode root = TreeOf(files, budget);
  return Reader(allowance, budget, options).Read(root, kind);
}

}  // namespace ckptfs
