// Writes zip archives as torch does, and invalid ones.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "parser/io/byte_source.h"

namespace ckptfs {

// How to write a member. By default it is as torch writes it.
struct ZipEntry {
  uint16_t flags = 0x0808;     // A descriptor follows; the name is UTF-8. Go into both headers.
  uint16_t method = 0;         // Deflates nothing: see Deflate.
  bool has_descriptor = true;  // Members without data never have one.
  std::string_view local_signature = "PK\3\4";
  std::optional<std::string> local_name;
  std::string local_extra;  // Before the padding.

  // Values in the central directory that differ from the actual ones.
  std::optional<uint32_t> crc;
  std::optional<uint64_t> size;
  std::optional<uint64_t> compressed_size;
  std::optional<uint64_t> header;            // Offset of the local header.
  std::optional<std::string> central_extra;  // Instead of the zip64 block.
  bool is_zip64 = false;                     // Puts sizes and offset into a zip64 block.
  std::string comment;
  uint16_t disk = 0;
};

// How to write the archive.
struct ZipArchive {
  std::string prefix;          // Before the archive.
  bool counts_prefix = false;  // Offsets count from the beginning of the prefix.
  uint64_t alignment = 64;     // Of data, in the archive without the prefix. 0: no padding.
  bool has_zip64_end = true;
  std::string comment;
  std::string trailing;  // After the end record.

  // Values in the end record, and in the zip64 end record if there is one.
  uint16_t disk = 0;
  std::optional<uint64_t> entries_here;
  std::optional<uint64_t> entries;
  std::optional<uint64_t> directory_size;
  std::optional<uint64_t> directory;  // Where it is.

  // Values in the zip64 end record and its locator only.
  std::optional<uint64_t> zip64_entries;
  std::optional<uint64_t> zip64_end;  // Where it is.
  uint32_t disks = 1;
};

// Add members, then take the archive. Zeros take no memory.
class ZipWriter {
 public:
  explicit ZipWriter(ZipArchive archive = {});

  ZipWriter& Add(std::string_view name, std::string_view data, const ZipEntry& entry = {});

  // Adds `size` zeros. Their CRC is 0.
  ZipWriter& AddZeros(std::string_view name, uint64_t size, const ZipEntry& entry = {});

  // Adds deflated `data`.
  ZipWriter& AddDeflated(std::string_view name, std::string_view data, ZipEntry entry = {});

  // Returns the archive. Precondition: there are no zeros in it.
  std::string Finish() const;

  // The same as a source.
  ByteSourcePtr Source() const;

 private:
  std::map<uint64_t, std::string> Pieces() const;
  void AddMember(std::string_view name, std::string_view data, uint64_t size, ZipEntry entry);
  void AddEntry(std::string_view name, const ZipEntry& entry, uint64_t header);

  const ZipArchive archive_;
  std::map<uint64_t, std::string> pieces_;  // By place in the archive. Between them are zeros.
  uint64_t size_ = 0;                       // Of the archive so far.
  uint64_t entries_ = 0;
  std::string directory_;
};

// Returns `data` as a raw deflate stream.
std::string Deflate(std::string_view data);

// Returns the CRC-32 of `data`.
uint32_t Crc(std::string_view data);

}  // namespace ckptfs
