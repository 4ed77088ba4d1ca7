// The files of TensorDict.consolidate: see tensordict/single_file.h.
//
// They begin with the bytes of a tensor, which may be anything, so that they look like other
// formats that have short marks. Their end looks like theirs alone: it is tried first.

#include "parser/base/budget.h"
#include "parser/format.h"
#include "parser/format/tensordict/single_file.h"

namespace ckptfs {
namespace tensordict {
namespace {

Checkpoint Parse(const Source& source, const ReadOptions& options) {
  return ReadConsolidated(source.file, *options.budget);
}

}  // namespace
}  // namespace tensordict

extern const Format tensordict_consolidated_format{
    .name = "tensordict", .matches = tensordict::IsConsolidated, .parse = tensordict::Parse};

}  // namespace ckptfs
