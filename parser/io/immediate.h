// Sources that can be read at once.

#pragma once

#include "parser/io/byte_source.h"

namespace ckptfs {

// A source that may say of itself that a read takes no longer than one of a local file: nothing is
// decoded, decrypted, gathered, hashed or fetched for it.
class Immediate {
 public:
  Immediate() = default;
  Immediate(const Immediate&) = delete;
  Immediate& operator=(const Immediate&) = delete;
  virtual bool is_immediate() const { return true; }

 protected:
  ~Immediate() = default;
};

// Whether reads of `source` are immediate. Of one that says nothing they are not.
inline bool IsImmediate(const ByteSource& source) {
  const auto* const immediate = dynamic_cast<const Immediate*>(&source);
  return immediate != nullptr && immediate->is_immediate();
}

}  // namespace ckptfs
