// Tar archives around checkpoints, such as the .nemo files of NeMo; see archive/files.h.
// torch_tar.cc reads those of old releases of PyTorch.

#include "parser/codec/tar.h"

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/format.h"
#include "parser/format/archive/files.h"

namespace ckptfs {
namespace {

bool MatchesTar(const Probe& probe) { return tar::IsTar(probe.head); }

Checkpoint ParseTar(const Source& source, const ReadOptions& options) {
  const uint64_t size = source.file->size();
  Budget& budget = *options.budget;
  std::vector<tar::Member> members = [&] {
    try {
      return tar::ReadDirectory(*source.file, budget);
    } catch (const Error& e) {
      throw WithContext("tar", e);
    }
  }();
  std::vector<ArchivedFile> files;
  for (tar::Member& member : members) {
    budget.Charge(2 * (sizeof(ArchivedFile) + 2 * member.name.size()));
    const bool is_file = member.error.empty();
    Record record{
        .data = {},
        .member = member.name,
        .is_in_file = is_file,
    };
    if (is_file) {
      record.data = {source.file, member.offset, member.size};
    } else {
      record.error.emplace(ENOTSUP, member.error);
    }
    files.push_back({.path = std::move(member.name), .record = std::move(record), .cost = 0});
  }
  return ReadArchivedFiles(files, "tar", size, budget, options);
}

}  // namespace

extern const Format tar_format{
    .name = "tar", .matches = MatchesTar, .parse = ParseTar, .is_archive = true};

}  // namespace ckptfs
