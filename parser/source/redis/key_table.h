// The keys whose values contain a checkpoint.
//
// One key whose value is the file, or many, as TensorDeserializer.to_redis of tensorizer stores a
// model:
//
//   PREFIX:header:0                    the beginning of the file, with the index
//   PREFIX:NAME:OFFSET OF ITS HEADER   the header of a tensor
//   PREFIX:NAME:OFFSET OF ITS DATA     the data of a tensor; present, but empty, if it has none
//
// The offsets are those in the file, so that the concatenated values are the file, except for the
// eight zero bytes at its end, which are not needed. The index contains all keys, so no search is
// necessary. Names are verbatim and may contain any bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs::redis {

// The largest header that is read, in bytes: sixteen times that of all releases of tensorizer.
constexpr uint64_t kLargestHeader = uint64_t{4} << 20U;

class KeyTable {
 public:
  // The part of the file in the value of one key.
  struct Part {
    uint64_t offset = 0;  // In the file.
    uint64_t length = 0;  // Bytes; at least one.
    std::string_view name;

    uint64_t end() const { return offset + length; }
  };

  // The whole file is the value of `key`.
  KeyTable(std::string key, uint64_t length);

  // A model under `prefix` with the value `header` of its header key. Throws Error if that is
  // malformed; leaves out parts that overlap previous ones.
  KeyTable(std::string prefix, std::vector<std::byte> header);

  // Sorted by offset, without overlaps.
  std::span<const Part> parts() const { return parts_; }

  // Returns the index of the first part that ends after `offset`; the number of parts if none does.
  size_t Find(uint64_t offset) const;

  std::string KeyOf(const Part& part) const;

  // The value of the header key; empty if this is not a model.
  std::span<const std::byte> header() const { return header_; }

 private:
  std::string prefix_;             // Or the key, ...
  bool is_model_ = true;           // ... if this is not a model.
  std::vector<std::byte> header_;  // The names point into it.
  std::vector<Part> parts_;
};

// Returns the key of the header of a model.
std::string HeaderKey(std::string_view prefix);

}  // namespace ckptfs::redis
