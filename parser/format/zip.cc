// Zip archives. Several formats are one; which of them an archive has shows in the names of its
// members, so its directory is read first, and then given to the format that knows it.

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "parser/budget.h"
#include "parser/codec/zip.h"
#include "parser/error.h"
#include "parser/format.h"
#include "parser/format/archive/members.h"
#include "parser/format/numpy/npz.h"
#include "parser/format/tensordict/zip.h"
#include "parser/format/torch/zip.h"
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

bool Matches(const Probe& probe) {
  constexpr std::string_view kLocalHeader = "PK\3\4";
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  return head.starts_with(kLocalHeader) || zip::HasEndRecord(probe.tail);
}

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  const uint64_t size = source.file->size();
  Budget budget = Budget::ForFile(size);
  Members members({source.file, 0, size}, budget, options.verification,
                  std::make_shared<PanelCache>());
  const auto* kind = std::ranges::find_if(kKinds, [&](const Kind& k) { return k.is_one(members); });
  if (kind == std::end(kKinds)) {
    Fail(ENOTSUP, "is a zip archive with {} members, but none of a checkpoint, such as data.pkl",
         members.list().size());
  }
  Checkpoint checkpoint = kind->read(source, std::move(members), options);
  checkpoint.format = kind->name;
  return checkpoint;
}

}  // namespace

extern const Format zip_format{.name = "zip", .matches = Matches, .parse = Parse};

}  // namespace ckptfs
