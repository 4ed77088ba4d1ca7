// The keys that the bytes of a checkpoint are under.
//
// That is one key whose value is the file, or many, as TensorDeserializer.to_redis of tensorizer
// stores a model:
//
//   PREFIX:header:0                    the beginning of the file, with the index
//   PREFIX:NAME:OFFSET OF ITS HEADER   the header of a tensor
//   PREFIX:NAME:OFFSET OF ITS DATA     the data of a tensor; there and empty if it has none
//
// The offsets are those in the file, so that the values are the file, one after another, but for
// the eight zero bytes at its end, which nobody needs. Which keys there are is in the index, and so
// none has to be searched for. Names are as the index has them, and so may have any bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs::redis {

// The largest header that is read, in bytes: sixteen times what all releases of tensorizer write.
constexpr uint64_t kLargestHeader = uint64_t{4} << 20U;

class KeyTable {
 public:
  // The value of one key is part of the file.
  struct Part {
    uint64_t offset = 0;  // In the file.
    uint64_t length = 0;  // Bytes; at least one.
    std::string_view name;

    uint64_t end() const { return offset + length; }
  };

  // All of the file is under `key`.
  KeyTable(std::string key, uint64_t length);

  // A model under `prefix`, the value of whose header is `header`. Throws Error if this is not what
  // tensorizer writes; parts that would overlap others before them are left out.
  KeyTable(std::string prefix, std::vector<std::byte> header);

  // In the order of the file, without overlaps.
  std::span<const Part> parts() const { return parts_; }

  // Returns the index of the first part that ends behind `offset`; the number of parts if none
  // does.
  size_t Find(uint64_t offset) const;

  std::string KeyOf(const Part& part) const;

  // The value of the header, if this is a model.
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
