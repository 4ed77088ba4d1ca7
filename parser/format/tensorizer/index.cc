#include "parser/format/tensorizer/index.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "parser/base/dtype.h"
#include "parser/base/error.h"

namespace ckptfs::tensorizer {
namespace {

constexpr uint32_t kTag = 1;
constexpr uint32_t kLongTag = 5;

// Reads the tag of an entry, and returns whether its sizes have 64 bits.
bool ReadTag(ByteReader& reader) {
  const uint64_t place = reader.position();
  const auto tag = reader.Read<uint32_t>("tag");
  if (tag != kTag && tag != kLongTag) {
    Fail(EBADMSG, "index at byte {}: an entry has the tag {}, but {} and {} are known", place, tag,
         kTag, kLongTag);
  }
  return tag == kLongTag;
}

Entry ReadEntry(ByteReader& reader, bool has_tags) {
  Entry entry;
  entry.is_long = has_tags && ReadTag(reader);
  const auto name_size = reader.Read<uint16_t>("length of a name");
  if (name_size == 0) Fail(EBADMSG, "index at byte {}: a name is empty", reader.position());
  entry.name = reader.TakeText(name_size, "name");
  const auto kind = reader.Read<uint8_t>("type of a tensor");
  if (kind > static_cast<uint8_t>(Kind::kStateDict)) {
    Fail(EBADMSG, "tensor {}: is of type {}, but 0, 1 and 2 are known", Quoted(entry.name), kind);
  }
  entry.kind = static_cast<Kind>(kind);
  const auto dtype_size = reader.Read<uint8_t>("length of a dtype");
  entry.dtype = reader.TakeText(dtype_size, "dtype");
  const auto dimensions = reader.Read<uint8_t>("number of dimensions");
  if (dimensions > kMaxDimensions) {
    Fail(EBADMSG, "tensor {}: has {} dimensions, but {} is the most", Quoted(entry.name),
         dimensions, kMaxDimensions);
  }
  entry.shape = ReadShape(reader, dimensions, entry.is_long);
  entry.header_offset = reader.Read<uint64_t>("offset of a header");
  entry.data_offset = reader.Read<uint64_t>("offset of data");
  entry.data_size = reader.Read<uint64_t>("length of data");
  return entry;
}

}  // namespace

std::vector<uint64_t> ReadShape(ByteReader& reader, size_t count, bool is_long) {
  std::vector<uint64_t> shape(count);
  for (uint64_t& size : shape) {
    size = is_long ? reader.Read<uint64_t>("size") : reader.Read<uint32_t>("size");
  }
  return shape;
}

Index ReadIndex(const ByteSource& file, const FileHeader& header, Budget& budget) {
  budget.Grow(header.index_size);
  budget.Charge(header.index_size);
  Index index{.bytes = std::vector<std::byte>(static_cast<size_t>(header.index_size)),
              .entries = {}};
  file.ReadAt(FileHeader::kSize, index.bytes);
  const auto end = std::ranges::find_if(index.bytes.rbegin(), index.bytes.rend(),
                                        [](std::byte b) { return b != std::byte{}; });
  const auto used = static_cast<size_t>(index.bytes.rend() - end);  // Zeros follow.

  ByteReader reader("index", index.bytes, FileHeader::kSize);
  for (uint64_t i = 0; i < header.count; ++i) {
    // Where there is no room for the entries of a call, tensorizer writes none of them, but counts
    // their tensors all the same when it closes the file.
    if (reader.offset() >= used) {
      Fail(EBADMSG,
           "has only {} of {} tensors in its index: the index had no room for more when they were "
           "written, and nothing else tells where they are",
           i, header.count);
    }
    Entry entry = ReadEntry(reader, header.has_tags);
    budget.Charge(2 * sizeof(Entry) + entry.shape.size() * sizeof(uint64_t));
    index.entries.push_back(std::move(entry));
  }
  return index;
}

}  // namespace ckptfs::tensorizer
