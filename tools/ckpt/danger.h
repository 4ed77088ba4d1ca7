// Classes and functions that are dangerous in a pickle.

#pragma once

#include <cstdint>
#include <string_view>

namespace ckptfs::ckpt {

enum class Danger : uint8_t {
  kNone,     // torch.load(weights_only=True) allows it.
  kRefused,  // torch.load(weights_only=True) refuses it: what it does is not known.
  kCode,     // It runs commands or code, or reaches the network or files.
};

std::string_view NameOf(Danger danger);

// Returns how dangerous the global `name` is: "os.system". `is_refused`: by weights_only.
Danger DangerOf(std::string_view name, bool is_refused);

}  // namespace ckptfs::ckpt
