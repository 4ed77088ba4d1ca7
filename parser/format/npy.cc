// An array that numpy.save wrote, in a file of its own; see parser/codec/npy.h. It has no name.

#include <cerrno>
#include <memory>
#include <utility>

#include "parser/codec/npy.h"
#include "parser/error.h"
#include "parser/format.h"
#include "parser/format/numpy/array.h"

namespace ckptfs {
namespace {

bool Matches(const Probe& probe) { return npy::IsNpy(probe.head); }

Checkpoint Parse(const Source& source, const ReadOptions& /*options*/) {
  const uint64_t size = source.file->size();
  Budget budget = Budget::ForFile(size);
  const Record file{.data = {source.file, 0, size}, .member = "", .is_in_file = true, .error = ""};
  Tensor tensor;
  numpy::FillSaved(npy::ReadHeader(*source.file, 0, size, budget), file,
                   std::make_shared<PanelCache>(), tensor);
  Checkpoint checkpoint;
  checkpoint.root.members.push_back({{"tensor"}, std::move(tensor)});
  return checkpoint;
}

}  // namespace

extern const Format npy_format{.name = "npy", .matches = Matches, .parse = Parse};

}  // namespace ckptfs
