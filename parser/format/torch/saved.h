// The containers into which PyTorch has put objects, one function each. All of them read the part
// of a source that `data` is, so that a container may lie in the middle of a file, or in another
// one. The results have no format and no globals: who asked for them tells those (reading.h).

#pragma once

#include <cstddef>
#include <string_view>

#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"
#include "parser/format/torch/reading.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {

// Whatever it is, by its first bytes: an archive, a legacy stream or a pickle by itself. For what
// lies in another file, which may not go on for ever: throws Error(EFBIG) if it lies in too many.
Checkpoint ReadSaved(const Extent& data, Reading& reading);

// The zip archives of torch.save, TorchScript, torch.package and torch.export.
Checkpoint ReadZip(const Extent& data, Reading& reading);

// What torch.save wrote before 1.6, and can still write: five pickles and then the storages.
Checkpoint ReadLegacy(const Extent& data, Reading& reading);

// Whether `head`, the first kLegacyHead bytes of a file or all of a shorter one, begins such a
// stream.
constexpr size_t kLegacyHead = 64;
bool IsLegacy(std::string_view head);

// A pickle without storages beside it: the one that `record`, which has no error, begins with. Sets
// `length`, unless it is null, to its bytes.
Checkpoint ReadPlainPickle(const Record& record, Reading& reading, uint64_t* length = nullptr);

}  // namespace ckptfs::torch
