// Zip archives behind something else, as unzip and torch's own reader find them: by their end. What
// begins as another format is that, for so torch.load and numpy.load decide it: a tar archive, or a
// pickle, whose last file is a zip archive ends as one, too. So this is tried last.

#include "parser/codec/zip.h"
#include "parser/format.h"
#include "parser/format/archive/zip.h"

namespace ckptfs {
namespace {

bool Matches(const Probe& probe) { return zip::HasEndRecord(probe.tail); }

}  // namespace

extern const Format prefixed_zip_format{.name = "zip", .matches = Matches, .parse = ReadZipArchive};

}  // namespace ckptfs
