#include "fs/checks.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

// Counts the tensors, and the members that lack data: a tensor of unknown size and a missing object
// are values with an error; a tensor in pieces may lack some of them.
class LossCounter {
 public:
  // The depth of the recursion is that of the tree, which its format has bounded.
  void Add(const Group& group) {
    for (const Member& member : group.members) {
      std::visit(
          Overloaded{
              [&](const std::unique_ptr<Group>& child) {
                const bool was_whole = lost_ == 0;
                Add(*child);
                if (was_whole && lost_ > 0) path_.insert(0, member.key.text + ".");
              },
              [&](const Tensor& tensor) {
                ++tensors_;
                Lose("tensor", member.key,
                     tensor.is_complete ? MessageOf(tensor.error)
                                        : "some of its pieces are missing");
              },
              [&](const Value& value) { Lose("value", member.key, MessageOf(value.error)); },
              [&](const Table& table) { Lose("table", member.key, MessageOf(table.error)); }},
          member.content);
    }
  }

  // Throws Error(EBADMSG) if a member lacks data.
  void Check(std::string_view name) const {
    if (lost_ == 0) return;
    Fail(EBADMSG, "{}: {} {}: {}: {} of {} tensors are unreadable (strict)", name, kind_,
         Quoted(path_), reason_, lost_, std::max(tensors_, lost_));
  }

 private:
  void Lose(std::string_view kind, const Key& key, std::string_view reason) {
    if (reason.empty() || ++lost_ > 1) return;
    kind_ = kind;
    path_ = key.text;
    reason_ = reason;
  }

  size_t tensors_ = 0;
  size_t lost_ = 0;
  std::string_view kind_;    // Of the first missing member,
  std::string path_;         // its path
  std::string_view reason_;  // and the reason.
};

}  // namespace

void CheckWhole(const Checkpoint& checkpoint, std::string_view name) {
  LossCounter losses;
  losses.Add(checkpoint.root);
  losses.Check(name);
}

std::shared_ptr<const Verification> VerificationFor(Verify verify, Log& log) {
  if (verify == Verify::kOff) return nullptr;
  const auto report = [&log](std::string_view what, Verdict verdict, std::string_view found) {
    const auto level = verdict == Verdict::kRight ? Log::Level::kNotice : Log::Level::kError;
    log.Write(level, fmt::format("{}: {}", what, found));
  };
  return std::make_shared<Verification>(
      Verification{.is_enforced = verify == Verify::kEnforce, .report = report});
}

void Readers::Add(mode_t permissions, gid_t group) {
  const std::lock_guard lock(mutex_);
  has_groups_ = has_groups_ || (group_ && *group_ != group);
  group_ = group;
  permissions_ &= permissions;
}

mode_t Readers::MaskFor(gid_t group) const {
  const std::lock_guard lock(mutex_);
  const bool others = (permissions_ & S_IROTH) != 0;
  // Members of another group have the permissions of others.
  const bool is_theirs = !group_ || (!has_groups_ && *group_ == group);
  const bool members = (permissions_ & S_IRGRP) != 0 && (is_theirs || others);
  return (members ? 0U : S_IRWXG) | (others ? 0U : S_IRWXO);
}

}  // namespace ckptfs
