// Whether the bytes of a checkpoint are those that were saved, as far as it has hashes of them.

#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ckptfs {

// What is known of bytes that have a hash.
enum class Verdict : uint8_t {
  kNone,    // There is no hash, or nobody wants to know.
  kUnread,  // Not all of them have been read yet.
  kRight,
  kWrong,
};

// What the user wants of the hashes. Shared by all sources that are checked.
struct Verification {
  // Reading on after the hash was found wrong is EIO; else it is only told.
  bool is_enforced = false;

  // Called once for each run of bytes of which all has been read, from any thread. `what` names it:
  // "model.tensors: tensor 'fc.weight'"; `found` tells what is right or wrong: "its CRC32 and
  // SHA-256 are right", "its CRC32 is 0x1, but 0x2 was saved".
  std::function<void(std::string_view what, Verdict verdict, std::string_view found)> report;
};

}  // namespace ckptfs
