// Writes files as tensorizer does, except for the size of the index, and invalid ones.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

class TensorizerWriter {
 public:
  struct Tensor {
    std::string name = "w";
    std::string dtype = "<f4";
    std::vector<uint64_t> shape = {2, 2};
    std::string data = "0123456789abcdef";
    unsigned kind = 2;  // A state dict's.
    uint16_t module = 0;
    std::vector<std::pair<unsigned, std::string>> hashes = {};  // Types and values.
    std::string encryption = {};            // The section without its length; in encrypted files.
    std::optional<int64_t> data_size = {};  // The written size; the actual one if unset.
    std::string more = {};                  // At the end of the header, before its last field.
  };

  explicit TensorizerWriter(uint32_t version = 1, uint64_t flags = 0)
      : version_(version), flags_(flags) {}

  // Adds a tensor, which the index may describe differently (`in_index`).
  TensorizerWriter& Add(const Tensor& tensor) { return Add(tensor, tensor); }
  TensorizerWriter& Add(const Tensor& tensor, const Tensor& in_index);

  // Adds zeros to the index, behind the last entry.
  TensorizerWriter& AddRoom(size_t size);

  // Positions in the file, if no more is added: of the header of a tensor, of its entry in the
  // index, and there of the offset of the header, which that of the data follows.
  size_t header_offset(size_t number) const;
  size_t entry_offset(size_t number) const;
  size_t offsets_in_entry(size_t number) const;

  std::string Finish() const;
  ByteSourcePtr Source() const;

 private:
  struct Added {
    std::string entry;   // Without offsets, and ...
    std::string length;  // ... the fields after them.
    std::string header;
    std::string data;
  };

  bool has_tags() const { return (flags_ & 2U) != 0; }
  bool is_encrypted() const { return version_ == 3 || (version_ > 3 && (flags_ & 1U) != 0); }
  size_t index_size() const;

  uint32_t version_;
  uint64_t flags_;
  size_t room_ = 0;
  std::vector<Added> tensors_;
};

// A number as `size` bytes, the least significant first.
std::string LittleEndian(uint64_t number, size_t size);

// A section on encryption: a number of records, each of which has a type.
std::string EncryptionSection(const std::vector<std::pair<unsigned, std::string>>& records);

// Such records: data in chunks, and the derivation of the key from a passphrase.
std::string ChunksRecord(uint64_t chunk_size, std::string_view nonce, std::string_view tags);
std::string DerivationRecord(uint64_t passes, uint64_t memory, std::string_view salt,
                             unsigned method = 1, unsigned algorithm = 2);

}  // namespace ckptfs
