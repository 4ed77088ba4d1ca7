#include "fs/hiding_folder.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ckptfs {
namespace {

class HidingFolder final : public ForwardingFolder {
 public:
  // `name` is that of the first directory on the way, `rest` the path from there; empty: it is the
  // one to hide.
  HidingFolder(FolderPtr folder, std::string name, std::string rest)
      : ForwardingFolder(std::move(folder)), name_(std::move(name)), rest_(std::move(rest)) {}

  std::vector<std::string> ListFolders() const override {
    std::vector<std::string> names = ForwardingFolder::ListFolders();
    if (rest_.empty()) std::erase(names, name_);
    return names;
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    if (name != name_) return ForwardingFolder::OpenFolder(name);
    if (rest_.empty()) return nullptr;
    FolderPtr opened = ForwardingFolder::OpenFolder(name);
    return opened == nullptr ? nullptr : MakeHidingFolder(std::move(opened), rest_);
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    if (name == name_ && rest_.empty()) return std::nullopt;
    return ForwardingFolder::Find(name);
  }

 private:
  const std::string name_;
  const std::string rest_;
};

}  // namespace

FolderPtr MakeHidingFolder(FolderPtr folder, const std::string& path) {
  const size_t slash = path.find('/');
  std::string rest = slash == std::string::npos ? "" : path.substr(slash + 1);
  return std::make_shared<HidingFolder>(std::move(folder), path.substr(0, slash), std::move(rest));
}

}  // namespace ckptfs
