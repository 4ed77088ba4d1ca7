// An object that was fetched whole, because its server cannot serve parts of it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "parser/base/fd.h"
#include "parser/io/remote_object.h"

namespace ckptfs::http {

// A file without a name that holds the bytes. Written by one thread; then readable by many.
class Spool {
 public:
  // `expected` is how many bytes will come, if that is known. Throws Error: ENOSPC if the disk has
  // no room for them. If it is not known, no more of the disk is taken than is left free: such a
  // body need not end.
  explicit Spool(std::optional<uint64_t> expected);

  // Throws Error: ENOSPC if the disk is full, or half full of bytes whose number is not known.
  void Append(std::span<const std::byte> bytes);

  uint64_t size() const { return size_; }

  // Delivers `length` bytes from `offset` on, which are there. Throws Error(EIO).
  void Deliver(uint64_t offset, uint64_t length, Delivery& delivery) const;

 private:
  // Of the disk, in bytes.
  uint64_t FreeSpace() const;

  Fd file_;
  const bool is_length_known_;
  uint64_t size_ = 0;
};

}  // namespace ckptfs::http
