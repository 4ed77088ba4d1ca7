#include "parser/format/archive/folder.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {
namespace {

constexpr size_t kMostDepth = 32;  // Directories in one another.

class ArchiveFolder final : public Folder {
 public:
  ArchiveFolder(const ArchiveNode& node, std::string name) : node_(node), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  std::vector<std::string> List() const override { return NamesOf(node_.files); }
  std::vector<std::string> ListFolders() const override { return NamesOf(node_.folders); }

  ByteSourcePtr Open(const std::string& name) const override {
    Check(name);
    const auto found = node_.files.find(name);
    if (found == node_.files.end()) Fail(ENOENT, "there is no such file in the archive");
    return SourceOf(*found->second);
  }

  std::shared_ptr<const Folder> OpenFolder(const std::string& name) const override {
    Check(name);
    const auto found = node_.folders.find(name);
    if (found == node_.folders.end()) return nullptr;
    return MakeArchiveFolder(found->second, name);
  }

 private:
  static void Check(const std::string& name) {
    if (!IsPlainName(name)) Fail(EBADMSG, "is not the name of a file in the directory");
  }

  template <typename T>
  static std::vector<std::string> NamesOf(const std::map<std::string, T, std::less<>>& entries) {
    if (entries.size() > kMostFiles) {
      Fail(EFBIG, "has {} files in one directory, but {} is the most", entries.size(), kMostFiles);
    }
    std::vector<std::string> names;
    std::ranges::transform(entries, std::back_inserter(names),
                           [](const auto& entry) { return entry.first; });
    return names;
  }

  const ArchiveNode& node_;
  const std::string name_;
};

}  // namespace

ArchiveNode TreeOf(const std::vector<ArchivedFile>& files, Budget& budget) {
  ArchiveNode root;
  for (const ArchivedFile& file : files) {
    ArchiveNode* node = &root;
    std::string_view path = file.path;
    size_t depth = 0;
    for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/')) {
      if (++depth > kMostDepth) {
        Fail(EFBIG, "{} lies more than {} directories deep", Quoted(file.path), kMostDepth);
      }
      budget.Charge(sizeof(ArchiveNode) + 8 * sizeof(void*) + slash);
      node = &node->folders[std::string(path.substr(0, slash))];
      path.remove_prefix(slash + 1);
    }
    if (!IsPlainName(path)) Fail(EBADMSG, "{} is not the name of a file", Quoted(file.path));
    budget.Charge(8 * sizeof(void*) + path.size());
    node->files.emplace(path, &file);
  }
  return root;
}

ByteSourcePtr SourceOf(const ArchivedFile& file) {
  const Record& record = file.record;
  if (!record.error.empty()) throw Error(record.error_code, record.error);
  return std::make_shared<Slice>(record.data);
}

FolderPtr MakeArchiveFolder(const ArchiveNode& node, std::string name) {
  return std::make_shared<ArchiveFolder>(node, std::move(name));
}

}  // namespace ckptfs
