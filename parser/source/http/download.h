// The file that an object is downloaded to if its server does not support range requests.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "parser/base/fd.h"
#include "parser/io/remote_object.h"

namespace ckptfs::http {

// A downloaded object, in an unnamed temporary file. Written by one thread; then read by any
// number.
class Download {
 public:
  // `expected` is the length in bytes, if it is known. Throws Error: ENOSPC if the disk has less
  // free space. If it is unknown, at most half of the free space is used: the body may be endless.
  explicit Download(std::optional<uint64_t> expected);

  // Throws Error: ENOSPC if the disk is full, or half full with a body of unknown length.
  void Append(std::span<const std::byte> bytes);

  // Delivers `length` bytes from `offset` on, which have been written. Throws Error(EIO).
  void Deliver(uint64_t offset, uint64_t length, Delivery& delivery) const;

 private:
  // Returns the free space of the disk, in bytes.
  uint64_t FreeSpace() const;

  Fd file_;
  const bool is_length_known_;
  uint64_t size_ = 0;
};

}  // namespace ckptfs::http
