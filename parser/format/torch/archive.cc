#include "parser/format/torch/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "parser/error.h"
#include "parser/layer/inflated.h"
#include "parser/layer/slice.h"
#include "parser/layer/verified.h"

namespace ckptfs::torch {
namespace {

zip::Directory ReadDirectory(const Extent& data, Budget& budget) try {
  return zip::ReadDirectory(Slice(data), budget);
} catch (const Error& e) {
  throw WithContext("zip", e);
}

}  // namespace

Archive::Archive(Extent data, Budget& budget, std::shared_ptr<const Verification> verification)
    : data_(std::move(data)),
      budget_(budget),
      verification_(std::move(verification)),
      directory_(ReadDirectory(data_, budget)) {
  if (FindPickle()) {
    if (Find("constants.pkl") != nullptr) kind_ = Kind::kScript;
  } else {
    FindKind();
  }
}

// The folder is what precedes data.pkl. PyTorch takes that of the first member; where that is
// another one, it could not read the file.
bool Archive::FindPickle() {
  constexpr std::string_view kPickle = "/data.pkl";
  const auto is_pickle = [&](const zip::Member& member) {
    return member.name.ends_with(kPickle) &&
           member.name.find('/') == member.name.size() - kPickle.size();
  };
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
  constexpr std::pair<std::string_view, Kind> kMarks[] = {
      {"/archive_format", Kind::kExport}, {"/.data/extern_modules", Kind::kPackage}};
  for (const auto& mark : kMarks) {
    const std::string_view record = mark.first;
    const auto found = std::ranges::find_if(members(), [&](const zip::Member& member) {
      return member.name.ends_with(record) &&
             member.name.find('/') == member.name.size() - record.size();
    });
    if (found == members().end()) continue;
    prefix_ = found->name.substr(0, found->name.size() - record.size() + 1);
    kind_ = mark.second;
    return;
  }
  if (Find("serialized_state_dict.pt") != nullptr) {
    kind_ = Kind::kOldExport;
    return;
  }
  const bool has_version = std::ranges::any_of(
      members(), [](const zip::Member& member) { return member.name.ends_with("/version"); });
  if (has_version && members().size() <= 4) {
    Fail(EBADMSG, "has a version, but no data.pkl: the torch.save that wrote it failed");
  }
  Fail(ENOTSUP, "is a zip archive with {} members, but without data.pkl: no checkpoint of PyTorch",
       members().size());
}

Record Archive::Open(const std::string& record) const {
  Record opened{.data = {}, .member = record, .is_in_file = false, .error = ""};
  const zip::Member* member = Find(record);
  if (member == nullptr) {
    opened.error = fmt::format("the archive has no member {}", Quoted(prefix_ + record));
    return opened;
  }
  if (!member->error.empty()) {
    opened.error = fmt::format("{}: {}", record, member->error);
    return opened;
  }
  opened.is_in_file = member->method == zip::Method::kStored;
  opened.data = {.source = SourceOf(*member, record),
                 .offset = opened.is_in_file ? data_.offset + member->data_offset : 0,
                 .length = member->size};
  return opened;
}

ByteSourcePtr Archive::SourceOf(const zip::Member& member, std::string_view record) const {
  const bool is_stored = member.method == zip::Method::kStored;
  if (is_stored && (verification_ == nullptr || member.crc == 0)) return data_.source;
  if (const auto found = sources_.find(&member); found != sources_.end()) return found->second;
  constexpr uint64_t kCost = 640;  // In bytes, of a source and of remembering it.
  budget_.Charge(kCost);
  const Extent data = {data_.source, data_.offset + member.data_offset, member.compressed_size};
  const ByteSourcePtr source =
      is_stored ? MakeVerified(data, {.crc32 = member.crc}, {},
                               fmt::format("member {}", Quoted(record)), verification_)
                : MakeInflated(data, member.size, member.crc);
  return sources_.emplace(&member, source).first->second;
}

Record Archive::Require(const std::string& record) const {
  Record opened = Open(record);
  if (!opened.error.empty()) throw Error(opened.error_code, opened.error);
  return opened;
}

std::vector<std::byte> Archive::Read(const std::string& record, Budget& budget) const {
  const Record opened = Require(record);
  try {
    budget.Charge(opened.data.length);
    std::vector<std::byte> bytes(opened.data.length);
    if (!bytes.empty()) opened.data.source->ReadAt(opened.data.offset, bytes);
    return bytes;
  } catch (const Error& e) {
    throw WithContext(record, e);
  }
}

bool Archive::IsBigEndian(Budget& budget) const {
  const zip::Member* member = Find("byteorder");
  if (member == nullptr) return false;
  constexpr size_t kMost = 16;  // The two texts that are right have 6 and 3 bytes.
  const auto bytes = member->size > kMost ? std::vector<std::byte>() : Read("byteorder", budget);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text != "little" && text != "big") {
    Fail(EBADMSG, "byteorder is {}, but must be 'little' or 'big'", Quoted(text));
  }
  return text == "big";
}

}  // namespace ckptfs::torch
