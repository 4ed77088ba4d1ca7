// A saved TensorDict as it lies in an archive.

#include <utility>

#include "parser/format/tensordict/directory.h"

namespace ckptfs::tensordict {
namespace {

class MemberDirectory final : public Directory {
 public:
  // `path` ends with '/', or is empty.
  MemberDirectory(const Members& members, std::string path)
      : members_(members), path_(std::move(path)) {}

  std::string PathOf(const std::string& name) const override { return path_ + name; }

  std::optional<Record> Open(const std::string& name) const override {
    if (!IsPlainName(name)) return std::nullopt;
    const zip::Member* member = members_.Find(PathOf(name));
    if (member == nullptr) return std::nullopt;
    return members_.Open(*member, member->name);
  }

  // Archives need no members for directories: one is there if its meta.json is.
  std::unique_ptr<Directory> Below(const std::string& name) const override {
    if (!IsPlainName(name)) return nullptr;
    auto below = std::make_unique<MemberDirectory>(members_, path_ + name + "/");
    return members_.Find(below->PathOf(kMetaName)) == nullptr ? nullptr : std::move(below);
  }

  bool is_listed() const override { return true; }

  // No version that wrote archives left any.
  std::vector<std::string> Unlisted() const override { return {}; }

 private:
  const Members& members_;
  const std::string path_;
};

}  // namespace

std::unique_ptr<Directory> MakeDirectory(const Members& members) {
  return std::make_unique<MemberDirectory>(members, "");
}

}  // namespace ckptfs::tensordict
