#include "parser/format/torch/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "parser/base/error.h"
#include "parser/format/torch/zip.h"

namespace ckptfs::torch {
namespace {

// A record of an archive that has one folder, by its name.
bool IsRecord(const zip::Member& member, std::string_view record) {
  return member.name.ends_with(record) &&
         member.name.find('/') == member.name.size() - record.size();
}

// What is left of a torch.save that failed.
bool HasVersion(const Members& members) {
  constexpr size_t kMost = 4;
  return members.list().size() <= kMost &&
         std::ranges::any_of(members.list(), [](const zip::Member& member) {
           return IsRecord(member, "/version");
         });
}

constexpr std::string_view kPickle = "/data.pkl";
constexpr std::string_view kOldExport = "serialized_state_dict.pt";
constexpr std::pair<std::string_view, Archive::Kind> kMarks[] = {
    {"/archive_format", Archive::Kind::kExport},
    {"/.data/extern_modules", Archive::Kind::kPackage}};

}  // namespace

bool IsZip(const Members& members) {
  return HasVersion(members) || members.Find(kOldExport) != nullptr ||
         std::ranges::any_of(members.list(), [](const zip::Member& member) {
           return IsRecord(member, kPickle) || IsRecord(member, kMarks[0].first) ||
                  IsRecord(member, kMarks[1].first);
         });
}

Archive::Archive(Members members) : members_(std::move(members)) {
  try {
    members_.directory().CheckPaths();
  } catch (const Error& e) {
    throw WithContext("zip", e);
  }
  if (FindPickle()) {
    const zip::Member* constants = Find("constants.pkl");
    if (constants != nullptr) kind_ = Kind::kScript;
    const zip::Member* const whole[] = {Find("data.pkl"), Find("byteorder"), constants};
    members_.Prefetch(whole);
  } else {
    FindKind();
  }
}

// The folder is what precedes data.pkl. PyTorch takes that of the first member; where that is
// another one, it could not read the file.
bool Archive::FindPickle() {
  const auto is_pickle = [](const zip::Member& member) { return IsRecord(member, kPickle); };
  const auto pickles = std::ranges::count_if(members(), is_pickle);
  if (pickles > 1) {
    Fail(EBADMSG, "has {} members data.pkl in different folders, so it is not clear which is meant",
         pickles);
  }
  if (pickles == 0) return false;
  const auto found = std::ranges::find_if(members(), is_pickle);
  prefix_ = found->name.substr(0, found->name.find('/') + 1);
  return true;
}

// An archive without data.pkl: others than torch.save have written it.
void Archive::FindKind() {
  for (const auto& mark : kMarks) {
    const std::string_view record = mark.first;
    const auto found = std::ranges::find_if(
        members(), [&](const zip::Member& member) { return IsRecord(member, record); });
    if (found == members().end()) continue;
    prefix_ = found->name.substr(0, found->name.size() - record.size() + 1);
    kind_ = mark.second;
    return;
  }
  if (Find(kOldExport) != nullptr) {
    kind_ = Kind::kOldExport;
    return;
  }
  if (HasVersion(members_)) {
    Fail(EBADMSG, "has a version, but no data.pkl: the torch.save that wrote it failed");
  }
  Fail(ENOTSUP, "is a zip archive with {} members, but without data.pkl: no checkpoint of PyTorch",
       members().size());
}

Record Archive::Open(const std::string& record) const {
  if (const zip::Member* member = Find(record)) return members_.Open(*member, record);
  return {.data = {},
          .member = record,
          .is_in_file = false,
          .error = fmt::format("the archive has no member {}", Quoted(prefix_ + record))};
}

Record Archive::Require(const std::string& record) const {
  Record opened = Open(record);
  if (!opened.error.empty()) throw Error(opened.error_code, opened.error);
  return opened;
}

std::vector<std::byte> Archive::Read(const std::string& record) const {
  return members_.Read(Open(record));
}

bool Archive::IsBigEndian() const {
  const zip::Member* member = Find("byteorder");
  if (member == nullptr) return false;
  constexpr size_t kMost = 16;  // The two texts that are right have 6 and 3 bytes.
  const auto bytes = member->size > kMost ? std::vector<std::byte>() : Read("byteorder");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text != "little" && text != "big") {
    Fail(EBADMSG, "byteorder is {}, but must be 'little' or 'big'", Quoted(text));
  }
  return text == "big";
}

}  // namespace ckptfs::torch
