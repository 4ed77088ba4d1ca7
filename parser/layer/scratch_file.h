// A temporary file for what would take long to be made again, and need not be there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "parser/base/fd.h"
#include "parser/base/mutex.h"

namespace ckptfs {

// A file without a name in $TMPDIR, else /var/tmp, which is made when it is first needed and goes
// away with this, however that ends. It takes no more of the disk than it leaves free, and than
// `space` has. Thread-safe.
class ScratchFile {
 public:
  // A null `space` has nothing.
  explicit ScratchFile(std::shared_ptr<ScratchSpace> space) : space_(std::move(space)) {}
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  // Keeps `bytes`; returns where they are. Nothing if there is no room for them, or no such file:
  // it is no error to do without.
  std::optional<uint64_t> Keep(std::span<const std::byte> bytes);

  // Reads the bytes that were written at `offset`. Throws Error.
  void Read(uint64_t offset, std::span<std::byte> buffer) const;

 private:
  // Returns where `size` bytes can go, which are counted then; nothing if there is no room.
  std::optional<uint64_t> Reserve(size_t size);

  const std::shared_ptr<ScratchSpace> space_;

  Mutex mutex_;
  Fd file_;                              // Never changes once it is made, and is not read before.
  uint64_t end_ GUARDED_BY(mutex_) = 0;  // Of what has been reserved.
};

}  // namespace ckptfs
