#include "parser/codec/tensorizer_index.h"

namespace ckptfs::tensorizer {

std::vector<uint64_t> ReadShape(ByteReader& reader, size_t count, bool is_long) {
  std::vector<uint64_t> shape(count);
  for (uint64_t& size : shape) {
    size = is_long ? reader.Read<uint64_t>("size") : reader.Read<uint32_t>("size");
  }
  return shape;
}

IndexEntry ReadIndexEntry(ByteReader& reader, bool has_tags) {
  IndexEntry entry;
  if (has_tags) entry.tag = reader.Read<uint32_t>("tag");
  entry.name = reader.TakeText(reader.Read<uint16_t>("length of a name"), "name");
  entry.kind = static_cast<Kind>(reader.Read<uint8_t>("type of a tensor"));
  entry.dtype = reader.TakeText(reader.Read<uint8_t>("length of a dtype"), "dtype");
  entry.shape = ReadShape(reader, reader.Read<uint8_t>("number of dimensions"), entry.is_long());
  entry.header_offset = reader.Read<uint64_t>("offset of a header");
  entry.data_offset = reader.Read<uint64_t>("offset of data");
  entry.data_size = reader.Read<uint64_t>("length of data");
  return entry;
}

}  // namespace ckptfs::tensorizer
