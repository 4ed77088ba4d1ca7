// The local headers of a zip archive: what lies before the data of each member.
//
// Only they say where data begin, behind extra fields of a length that nobody else knows. On a disk
// all of them are read with the directory. Over a network that would be a request for each member,
// so most are left until the member is read: data end where the next header begins, or the
// descriptor before that, so the place of their beginning can be told, too. Writers of checkpoints
// leave no gaps. Where one has, or the headers that have come along with the directory say that
// another thing is between members than was thought, all headers are read.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "parser/codec/zip.h"
#include "parser/io/byte_source.h"

namespace ckptfs::zip {

// A header, as the directory tells of it.
struct Header {
  uint64_t begin = 0;       // In the file.
  uint64_t end = 0;         // Of what of it is to be read: all but its extra fields.
  size_t member = 0;        // Index.
  uint64_t descriptor = 0;  // Bytes that probably follow the data.
};

// Finds out where the data of members begin, and sets their data_offset, or deferred_offset.
// `headers` are of different members, in any order, and end up sorted. `begins` are the places of
// all local headers that there are, those of members that cannot be read included; empty if
// `source` is not remote. Calls `on_damage` for each header that is none. Throws Error: EBADMSG,
// and what reading throws.
void LocateAll(const ByteSource& source, std::span<Header> headers, std::vector<uint64_t> begins,
               std::span<Member> members, uint64_t directory,
               const std::function<void(const Header& header)>& on_damage);

}  // namespace ckptfs::zip
