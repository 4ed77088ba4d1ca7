// Zip archives. Several formats are zip archives; the names of the members identify the format, so
// the directory is read first and passed to the matching format. Without a match, the members may
// be checkpoints themselves (archive/files.h).

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/zip.h"
#include "parser/codec/zip_records.h"
#include "parser/format.h"
#include "parser/format/archive/files.h"
#include "parser/format/archive/members.h"
#include "parser/format/numpy/npz.h"
#include "parser/format/tensordict/tree.h"
#include "parser/format/torch/archive.h"
#include "parser/format/zanj/zip.h"

namespace ckptfs {
namespace {

struct Kind {
  std::string_view name;                   // Of the format.
  bool (*is_one)(const Members& members);  // Looks at names only, and does not throw.
  Checkpoint (*read)(const Source& source, Members members, const ReadOptions& options);
};

// In the order in which they are tried.
constexpr Kind kKinds[] = {
    {"zanj", zanj::IsZip, zanj::ReadZip},
    {"torch", torch::IsZip, torch::ReadZip},
    {"tensordict", tensordict::IsZip, tensordict::ReadZip},
    {"npz", numpy::IsZip, numpy::ReadZip},
};

// An empty archive has an end record alone.
bool MatchesZip(const Probe& probe) {
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  return head.starts_with("PK\3\4") || head.starts_with("PK\5\6");
}

// An archive of torch.save.
bool BeginsWithPickle(const Probe& probe) { return zip::BeginsWithPickle(probe.head); }

// The cost of reading all of a member, in inflated bytes or the equivalent.
uint64_t CostOf(const zip::Member& member) {
  constexpr uint64_t kSlower = 8;  // bzip2 and LZMA.
  if (member.method == zip::Method::kStored) return 0;
  if (member.method == zip::Method::kDeflated) return member.size;
  return member.size > UINT64_MAX / kSlower ? UINT64_MAX : member.size * kSlower;
}

// An archive of checkpoints.
Checkpoint ReadFiles(const Members& members, uint64_t size, const ReadOptions& options) {
  try {
    members.directory().CheckPaths();
  } catch (const Error& e) {
    throw WithContext("zip", e);
  }
  std::vector<ArchivedFile> files;
  for (const zip::Member& member : members.list()) {
    members.budget().Charge(2 * (sizeof(ArchivedFile) + 2 * member.name.size()));
    files.push_back({.path = std::string(member.name),
                     .record = members.Open(member, member.name),
                     .cost = CostOf(member)});
  }
  return ReadArchivedFiles(files, "zip", size, members.budget(), options);
}

// Reads the zip archive that `source` is, or ends with. As Format::parse.
Checkpoint ReadZipArchive(const Source& source, const ReadOptions& options) {
  const uint64_t size = source.file->size();
  Budget& budget = *options.budget;
  Members members({source.file, 0, size}, budget, options, std::make_shared<BlockCache>());
  const auto* kind = std::ranges::find_if(kKinds, [&](const Kind& k) { return k.is_one(members); });
  if (kind == std::end(kKinds)) return ReadFiles(members, size, options);
  Checkpoint checkpoint = kind->read(source, std::move(members), options);
  checkpoint.format = kind->name;
  return checkpoint;
}

// Zip archives after other data, detected by their end as unzip and torch do. Other formats take
// precedence, as in torch.load and numpy.load: a tar archive or a pickle may also end with a zip
// archive. So this format is the last one.
bool EndsAsZip(const Probe& probe) { return zip::HasEndRecord(probe.tail); }

}  // namespace

extern const Format zip_format{.name = "zip",
                               .matches = MatchesZip,
                               .parse = ReadZipArchive,
                               .is_certain = BeginsWithPickle,
                               .begins_with_tail = true};

extern const Format prefixed_zip_format{
    .name = "zip", .matches = EndsAsZip, .parse = ReadZipArchive};

}  // namespace ckptfs
