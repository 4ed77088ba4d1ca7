// A folder in memory. Files of its folders have paths: "layer/meta.json".

#pragma once

#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/folder.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {

class MemoryFolder final : public Folder {
 public:
  explicit MemoryFolder(std::map<std::string, std::string> files) : files_(std::move(files)) {}

  std::string name() const override { return "folder"; }

  std::vector<std::string> List() const override {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_) {
      if (name.find('/') == std::string::npos) names.push_back(name);
    }
    return names;
  }

  std::vector<std::string> ListFolders() const override {
    std::vector<std::string> names;
    for (const auto& [path, bytes] : files_) {
      const std::string name = path.substr(0, path.find('/'));
      if (name != path && (names.empty() || names.back() != name)) names.push_back(name);
    }
    return names;
  }

  std::shared_ptr<const Folder> OpenFolder(const std::string& name) const override {
    if (!IsPlainName(name)) Fail(EBADMSG, "invalid file name");
    std::map<std::string, std::string> files;
    for (const auto& [path, bytes] : files_) {
      if (path.starts_with(name + "/")) files.emplace(path.substr(name.size() + 1), bytes);
    }
    return files.empty() ? nullptr : std::make_shared<MemoryFolder>(std::move(files));
  }

  ByteSourcePtr Open(const std::string& name) const override {
    const auto found = files_.find(name);
    if (found == files_.end()) Fail(ENOENT, "no such file");
    return std::make_shared<MemorySource>(found->second);
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    if (const auto file = files_.find(name); file != files_.end()) {
      return EntryInfo{.size = file->second.size()};
    }
    if (OpenFolder(name) == nullptr) return std::nullopt;
    return EntryInfo{.is_folder = true};
  }

 private:
  const std::map<std::string, std::string> files_;
};

// The folder as the source of a URI.
inline Source FolderOf(std::map<std::string, std::string> files) {
  return {
      .file = nullptr, .folder = std::make_shared<MemoryFolder>(std::move(files)), .file_name = ""};
}

// The same for one of its files.
inline Source FileOf(std::map<std::string, std::string> files, const std::string& name) {
  Source source = FolderOf(std::move(files));
  source.file = source.folder->Open(name);
  source.file_name = name;
  return source;
}

}  // namespace ckptfs
