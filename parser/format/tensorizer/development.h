// Files of versions of tensorizer that were never released.
//
// Three drafts called themselves data version 5 before a release did. The release marks its files
// by a feature flag that the drafts do not have; a file of version 5 without it is laid out as
// version 4, or is one of the drafts:
//
//   with tags     as the release, entries of the index begin with a tag, but there is no flag;
//   in one place  the headers of all tensors lie together behind the index, before all data;
//   relative      a block of 45 bytes stands in the place of the index, and offsets count from the
//                 places that it tells.
//
// Another draft pads headers and calls itself version 4. None of them is read: to take one layout
// for another would show wrong bytes.

#pragma once

#include <cstddef>
#include <span>

#include "parser/format/tensorizer/file_header.h"
#include "parser/format/tensorizer/index.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensorizer {

constexpr size_t kDevelopmentMark = 11;  // Bytes of the index that tell the drafts.

// Both are for files of version 5 without tags. They throw Error(ENOTSUP) if the file is a draft,
// which the beginning of what stands in the place of the index tells, ...
void RefuseDevelopmentHead(const FileHeader& header, std::span<const std::byte> index);

// ... or that data does not lie behind its header.
void RefuseDevelopmentLayout(const ByteSource& file, const Index& index);

}  // namespace ckptfs::tensorizer
